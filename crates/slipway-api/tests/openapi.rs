//! The API's description against the `OpenAPI` Initiative's own schema of `OpenAPI` 3.1
//! (<https://spec.openapis.org/oas/3.1/schema/2022-10-07>, Apache-2.0).

use serde_json::Value;

const SCHEMA: &str = include_str!("openapi-3.1.schema.json");

fn faults(description: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    schema.iter_errors(description).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn description() -> Value {
    serde_json::from_str(&slipway_api::openapi()).expect("JSON")
}

#[test]
fn the_description_is_one_of_openapi_3_1() {
    let mut description = description();
    assert_eq!(faults(&description), Vec::<String>::new());
    // The official schema leaves the schemas of bodies to JSON Schema's own.
    let schemas = description["components"]["schemas"].as_object().expect("schemas");
    assert!(schemas.len() > 10, "{schemas:?}");
    for (name, schema) in schemas {
        assert!(jsonschema::meta::is_valid(schema), "{name}: {schema}");
    }
    // The check can fail.
    description["paths"]["/campaigns"]["get"]["responses"] = Value::Null;
    assert_ne!(faults(&description), Vec::<String>::new());
}

/// Each schema that a body names is there.
#[test]
fn no_reference_leads_nowhere() {
    fn references(of: &Value, found: &mut Vec<String>) {
        match of {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(all) => all.iter().for_each(|one| references(one, found)),
            _ => {}
        }
    }
    let description = description();
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let place = reference.strip_prefix('#').expect("a place in this document");
        assert!(description.pointer(place).is_some(), "{reference}");
    }
}

#[test]
fn campaigns_can_be_extended_and_points_prioritised() {
    let description = description();
    for route in ["extend", "prioritise", "retry"] {
        let route = &description["paths"][format!("/campaigns/{{id}}/{route}")]["post"];
        assert!(route["requestBody"].is_object() && route["responses"]["200"].is_object(), "{route}");
    }
}
