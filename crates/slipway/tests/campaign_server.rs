//! The server of campaigns at its front door: real campaigns by HTTP, and callers who should not get in.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};

use common::http::{Answer, Served};
use common::{Inventory, Place, as_before, await_that};
use serde_json::{Value, json};

/// A campaign of a test's own name.
fn file(place: &Place, text: &str) -> Value {
    json!({"file": format!("campaign: {}\n{text}", place.name("c"))})
}

const QUICK: &str = "\
run: [sh, -c, 'test {x} -ne 3 || { echo broken >&2; exit 3; }; echo value {x}; printf \"t,y\\n0,{x}\\n1,2\\n\" > out.csv']
variables: {x: {integer: [1, 4]}, kind: [a, 'b \"c\", d']}
design: grid
attempts: 1
outputs: {value: {regex: 'value ([0-9]+)', unit: m}, all: {file: out.csv, series: y}}
";

/// Makes a campaign, and gives the path of its routes.
#[track_caller]
fn make(served: &Served, body: &Value) -> String {
    let made = served.call("POST", "/api/v1/campaigns", Some(body));
    assert_eq!(made.status, 201, "{}", made.text());
    format!("/api/v1/campaigns/{}", made.json()["id"].as_str().expect("a name"))
}

#[track_caller]
fn is_ok(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
}

fn await_state(served: &Served, path: &str, state: &str) {
    await_that(&format!("the campaign is {state}"), || {
        let of = served.call("GET", path, None).json();
        assert!(of["start"]["end"].is_null() || of["start"]["end"] == 0 || of["start"]["end"] == 5, "{of}");
        of["state"] == state
    });
}

#[test]
fn a_campaign_runs_from_its_file_to_its_files() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    let before = Inventory::of(&place);
    assert_eq!(served.call("GET", "/api/v1/campaigns", None).json(), json!([]));
    let path = make(&served, &file(&place, QUICK));
    let get = |rest: &str| served.call("GET", &format!("{path}{rest}"), None);
    let fresh = get("").json();
    assert_eq!((&fresh["state"], &fresh["counts"]["points"]), (&json!("new"), &json!(8)), "{fresh}");
    assert_eq!(served.call("POST", "/api/v1/campaigns", Some(&file(&place, QUICK))).status, 409);
    // Progress comes as events, until the end.
    let mut events = served.connect();
    let ask = format!(
        "GET {path}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        served.address, served.token
    );
    events.write_all(ask.as_bytes()).expect("it can be asked");
    is_ok(&served.call("POST", &format!("{path}/start"), Some(&json!({"workers": 2}))), 202);
    let last = BufReader::new(events).lines().map(|line| line.expect("events come")).find_map(|line| {
        let data: Value = serde_json::from_str(line.strip_prefix("data: ")?).expect("JSON");
        (data["state"] == "ended").then_some(data)
    });
    let last = last.expect("the end is told");
    assert_eq!((&last["counts"]["done"], &last["counts"]["failed"]), (&json!(6), &json!(2)), "{last}");
    as_before(&place, &before, "its lab went down");
    assert!(last["cost"]["used"].as_f64() > Some(0.0) && last["cost"]["fixed"].as_f64() > Some(0.0), "{last}");

    let table = get("/results").json();
    assert_eq!(table["columns"].as_array().expect("names")[..4], ["point", "x", "kind", "value"], "{table}");
    let rows = table["rows"].as_array().expect("rows");
    assert!(rows.len() == 6 && rows.iter().all(|row| row[1] == row[3]), "{table}");
    let part = get("/results?limit=4").json();
    let rest = get(&format!("/results?after={}", part["next"])).json();
    let both = [&part, &rest].map(|part| part["rows"].as_array().expect("rows").len());
    assert_eq!((both, &part["more"], &rest["more"]), ([4, 2], &json!(true), &json!(false)));
    let csv = get("/results.csv");
    assert_eq!(csv.text().lines().count(), 7);
    assert!(csv.text().contains("\"b \"\"c\"\", d\"") && csv.headers["content-disposition"].contains(".csv"));
    assert_eq!(get("").json()["failures"], json!({"fatal": 2}));
    let failed = get("/points?state=failed").json();
    let number = failed[0]["point"].as_u64().expect("a number");
    assert!(failed[0]["message"].as_str().expect("a reason").contains("broken"), "{failed}");
    assert_eq!(get(&format!("/points/{number}/log")).json()["stderr"], "broken\n");
    let done = rows[0][0].as_u64().expect("a number");
    let series = get(&format!("/points/{done}/series/all")).json();
    assert_eq!((&series["count"], &series["values"][1]), (&json!(2), &json!(2.0)), "{series}");
    let whole = get(&format!("/points/{done}")).json();
    assert_eq!((&whole["values"]["x"], &whole["state"]), (&rows[0][1], &json!("done")), "{whole}");
    let out = get(&format!("/points/{done}/files/out.csv"));
    assert_eq!(out.text(), format!("t,y\n0,{}\n1,2\n", rows[0][1]));
    assert_eq!(out.headers["content-type"], "application/octet-stream");
    let workers = get("/workers").json();
    let sum: u64 = workers.as_array().expect("workers").iter().filter_map(|one| one["done"].as_u64()).sum();
    assert_eq!(sum, 6, "{workers}");
    assert!(get("/sensitivity").json()[0]["why"].is_string());
    assert!(get("/file").text().contains("design: grid"));

    let retried = served.call("POST", &format!("{path}/retry"), Some(&json!({"failure": "fatal"})));
    assert_eq!(retried.json()["retried"], 2);
    is_ok(&served.call("POST", &format!("{path}/pause"), None), 204);
    assert_eq!(get("").json()["state"], "paused");
    is_ok(&served.call("POST", &format!("{path}/resume"), None), 204);
    is_ok(&served.call("POST", &format!("{path}/start"), None), 202);
    await_state(&served, &path, "ended");
    is_ok(&served.call("DELETE", &path, None), 204);
    assert_eq!(get("").status, 404);
    let left = std::fs::read_dir(place.path().join("slipway-campaigns")).expect("the folder").count();
    assert_eq!(left, 0, "nothing is left of it");
}

#[test]
fn a_campaign_outlives_its_server_and_is_cancelled_by_the_next() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let served = Served::new(&place, &[]);
    let slow = "run: sleep 600\nvariables: {x: {integer: [1, 9]}}\ndesign: {random: 50}\nworkers: 2\n";
    let path = make(&served, &file(&place, slow));
    let post = |route: &str, body: &Value| served.call("POST", &format!("{path}/{route}"), Some(body));
    assert_eq!(served.call("GET", &path, None).json()["counts"]["points"], 50);
    assert_eq!(post("extend", &json!({"size": 60})).json()["points"], 60);
    assert_eq!(post("extend", &json!({"size": 10})).status, 422, "no point is taken away");
    assert_eq!(served.call("GET", &path, None).json()["counts"]["points"], 60);
    assert_eq!(post("prioritise", &json!({"priority": 5, "points": [59, 58, 1000]})).json()["prioritised"], 2);
    assert_eq!(post("prioritise", &json!({"priority": 5, "where": ["x > 9"]})).json()["prioritised"], 0);
    for wrong in
        [json!({"priority": 5}), json!({"priority": 5000, "points": [1]}), json!({"priority": 1, "where": ["y = 1"]})]
    {
        let refused = post("prioritise", &wrong);
        assert_eq!((refused.status, refused.code()), (400, "bad-request".to_owned()), "{wrong}");
    }
    is_ok(&served.call("POST", &format!("{path}/start"), None), 202);
    let points_run = |served: &Served| served.call("GET", &path, None).json()["counts"]["running"].as_u64() > Some(0);
    await_that("points run", || points_run(&served));
    assert_eq!(served.call("POST", &format!("{path}/start"), None).code(), "conflict");
    assert_eq!(post("extend", &json!({"size": 70})).code(), "conflict");
    assert_eq!(served.call("DELETE", &path, None).code(), "conflict");
    // The points with a priority are the first ones that workers have.
    let points = served.call("GET", &format!("{path}/points?state=running"), None).json();
    let text = points.to_string();
    assert!(text.contains("59") || text.contains("58"), "{points}");
    drop(served);
    let served = Served::new(&place, &[]);
    let of = served.call("GET", &path, None).json();
    assert_eq!((&of["state"], &of["runs"]), (&json!("running"), &json!(true)), "{of}");
    is_ok(&served.call("POST", &format!("{path}/cancel"), None), 204);
    await_that("the coordinator ends", || served.call("GET", &path, None).json()["runs"] == false);
    assert_eq!(served.call("GET", &path, None).json()["state"], "cancelled");
    assert_eq!(served.call("POST", &format!("{path}/start"), None).code(), "conflict");
    drop(served);
    // The coordinator lets go of the campaign before it makes tables of results and ends.
    await_that("the coordinator's processes end", || Inventory::of(&place).processes == before.processes);
    as_before(&place, &before, "its lab went down");
}

/// Every route of the API's own description, with a token of each role, and without one.
#[test]
fn each_role_may_do_what_it_is_for_and_no_more() {
    let place = Place::new();
    let token = |name: &str, role: &str| {
        place.run(["campaign", "token", name, "--role", role, "--token-file", "tokens"]).trim().to_owned()
    };
    let [read, run, admin] = ["read", "run", "admin"].map(|role| token(role, role));
    let served = Served::new(&place, &["--token-file", "tokens"]);
    assert_eq!(served.token, "", "no token is printed where a file has some");
    let description = served.send("GET", "/api/v1/openapi.json", &[], b"").json();
    let mut routes = 0;
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let path = format!("/api/v1{}", path.replace("{id}", "none").replace(['{', '}'], "").replace("/point/", "/0/"));
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase();
            let may = |token: &str| {
                let status = served.call_as(token, &method, &path, None).status;
                assert_ne!(status, 500, "{method} {path}");
                !matches!(status, 401 | 403)
            };
            let needed = match method.as_str() {
                _ if path.starts_with("/api/v1/tokens") => 2,
                "GET" => 0,
                _ if path == "/api/v1/session" => 0,
                "DELETE" => 2,
                _ => 1,
            };
            let found = [&read, &run, &admin].map(|token| may(token));
            assert_eq!(found, [needed <= 0, needed <= 1, true], "{method} {path}");
            assert_eq!(served.send(&method, &path, &[], b"").status, 401, "{method} {path} without a token");
            assert_eq!(served.call_as("0".repeat(64).as_str(), &method, &path, None).status, 401);
            routes += 1;
        }
    }
    assert!(routes >= 20, "{description}");
    // Tokens come and go at once.
    let made = served.call_as(&admin, "POST", "/api/v1/tokens", Some(&json!({"name": "eve", "role": "read"}))).json();
    let eve = made["token"].as_str().expect("a secret");
    assert_eq!(served.call_as(eve, "GET", "/api/v1/session", None).json()["name"], "eve");
    is_ok(&served.call_as(&admin, "DELETE", "/api/v1/tokens/eve", None), 204);
    assert_eq!(served.call_as(eve, "GET", "/api/v1/session", None).status, 401);
    // A password stands for a token, for clients that know no other way.
    let basic = served.send("GET", "/api/v1/session", &["Authorization: Basic eDp5".to_owned()], b"");
    assert_eq!(basic.status, 401);
}

#[test]
fn a_cookie_alone_changes_nothing() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    let first = served.send("GET", &format!("/?token={}", served.token), &[], b"");
    assert_eq!((first.status, first.headers["location"].as_str()), (303, "/"));
    let cookie = &first.headers["set-cookie"];
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap_or_default());
    let session = served.send("GET", "/api/v1/session", std::slice::from_ref(&cookie), b"").json();
    let csrf = session["csrf"].as_str().expect("a proof").to_owned();
    let body = file(&place, QUICK).to_string();
    let post = |more: &[&str]| {
        let headers: Vec<String> =
            [cookie.as_str(), "Content-Type: application/json"].iter().chain(more).map(|&one| one.to_owned()).collect();
        served.send("POST", "/api/v1/campaigns", &headers, body.as_bytes())
    };
    assert_eq!(post(&[]).code(), "forbidden");
    assert_eq!(post(&["X-CSRF-Token: 0123"]).code(), "forbidden");
    let proof = format!("X-CSRF-Token: {csrf}");
    assert_eq!(post(&[&proof, "Origin: http://evil.example"]).code(), "forbidden");
    let own = format!("Origin: http://{}", served.address);
    assert_eq!(post(&[&proof, &own]).status, 201);
    // A wrong token beside a good cookie is refused, as it is no page's request.
    assert_eq!(post(&[&proof, "Authorization: Bearer x"]).status, 401);
    let out = served.send("DELETE", "/api/v1/session", &[cookie.clone(), proof], b"");
    is_ok(&out, 204);
    assert_eq!(served.send("GET", "/api/v1/session", &[cookie], b"").status, 401);
    let wrong = served.send("GET", "/?token=0", &[], b"");
    assert!(wrong.status == 303 && !wrong.headers.contains_key("set-cookie"));
}

#[test]
fn other_hosts_and_paths_out_of_the_folder_are_refused() {
    let place = Place::new();
    let served = Served::new(&place, &["--name", "sim.example"]);
    let of = |host: &str| served.send("GET", "/", &[format!("Host: {host}")], b"").status;
    assert_eq!(["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"].map(of), [421; 3]);
    assert_eq!(["localhost:1", "127.0.0.1", "[::1]:80", "sim.example"].map(of), [200; 4]);
    let page = served.send("GET", "/", &[], b"");
    let policy = &page.headers["content-security-policy"];
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");

    let campaign = make(&served, &file(&place, QUICK));
    std::fs::write(place.path().join("secret"), "top secret").expect("a file outside");
    let shelf = place.path().join("slipway-campaigns");
    std::os::unix::fs::symlink(place.path(), shelf.join("link")).expect("a link");
    let base = "/api/v1/campaigns";
    for path in [
        "/../../etc/passwd",
        "/page/../../../etc/passwd",
        "/page/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api/v1/campaigns/..",
        "/api/v1/campaigns/%2e%2e",
        "/api/v1/campaigns/%2e%2e%2fsecret",
        "/api/v1/campaigns/..%2f..%2fsecret/file",
        "/api/v1/campaigns/a%00b",
        "/api/v1/campaigns/link",
        "/api/v1/campaigns/%ff",
        "/api/v1/campaigns/.hidden",
        "/api/v1/campaigns/",
    ] {
        let answer = served.call("GET", path, None);
        assert!(matches!(answer.status, 400 | 404), "{path}: {} {}", answer.status, answer.text());
        assert!(!answer.text().contains(&*place.path().to_string_lossy()), "{path}: {}", answer.text());
    }
    let id = campaign.strip_prefix(base).expect("it begins so");
    for rest in [
        "../../../secret",
        "%2e%2e/%2e%2e/secret",
        "..%2f..%2f..%2fsecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "slipway.stdout%00",
        "../campaign.db",
    ] {
        let answer = served.call("GET", &format!("{base}{id}/points/0/files/{rest}"), None);
        assert!(matches!(answer.status, 400 | 404), "{rest}: {} {}", answer.status, answer.text());
    }
    for number in ["-1", "18446744073709551615", "99999999999999999999999", "x", "0%00"] {
        let answer = served.call("GET", &format!("{base}{id}/points/{number}"), None);
        assert!(matches!(answer.status, 400 | 404), "{number}: {} {}", answer.status, answer.text());
    }
    // Campaigns of the API use no file of this machine.
    for (text, words) in [
        ("inputs: [/etc/shadow]", "outside"),
        ("inputs: [../../../secret]", "outside"),
        ("storage: /tmp/x", "storage"),
        ("workers: {image: /some.tar}", "image"),
        ("inputs: [missing.txt]", "input"),
    ] {
        let name = format!("campaign: {}\n", place.name("d"));
        let body = json!({"file": format!("{name}run: cat x\nvariables: {{x: [1, 2]}}\ndesign: grid\n{text}\n")});
        let answer = served.call("POST", base, Some(&body));
        assert!(answer.status == 400 && answer.text().contains(words), "{text}: {} {}", answer.status, answer.text());
    }
    assert_eq!(std::fs::read_dir(&shelf).expect("the folder").count(), 2, "refused campaigns leave nothing");
}

#[test]
fn wrong_and_large_bodies_are_refused_in_words() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    let wrong = served.call("POST", "/api/v1/campaigns", Some(&json!({"file": "run: x\ndesign: {random: many}\n"})));
    assert_eq!((wrong.status, wrong.code()), (422, "campaign-file".to_owned()));
    assert_eq!(wrong.json()["error"]["problems"][0]["line"], 2, "{}", wrong.text());
    let token = format!("Authorization: Bearer {}", served.token);
    let send = |kind: &str, body: &[u8]| {
        served.send("POST", "/api/v1/campaigns", &[token.clone(), format!("Content-Type: {kind}")], body)
    };
    for body in ["", "{", "[]", "{\"file\": 7}", "{\"file\": \"\", \"more\": 1}", "\u{0}"] {
        let answer = send("application/json", body.as_bytes());
        assert!((400..=422).contains(&answer.status) && !answer.code().is_empty(), "{body}: {}", answer.text());
    }
    assert_eq!(send("text/plain", b"{}").status, 415);
    let large = json!({"file": "x".repeat(9 << 20)}).to_string();
    assert_eq!(send("application/json", large.as_bytes()).status, 413);
    // An archive is announced as larger than may be, and the server does not wait for all of it.
    let head = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: {}\r\nX-Long: {}\r\n\r\n",
        served.address,
        "x".repeat(64 << 10)
    );
    assert_eq!(served.raw(head.as_bytes()).status, 431);
    assert_eq!(served.send("PATCH", "/api/v1/campaigns", std::slice::from_ref(&token), b"").status, 405);
    assert_eq!(served.call("POST", "/api/v1/campaigns/none/start", Some(&json!({"workers": 0}))).status, 400);
    is_ok(&served.call("GET", "/api/v1/campaigns", None), 200);
}

#[test]
fn an_archive_brings_inputs_and_hostile_ones_leave_nothing() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    let token = format!("Authorization: Bearer {}", served.token);
    let send = |archive: &str| {
        let bytes = std::fs::read(place.path().join(archive)).expect("the archive");
        let kind = "Content-Type: application/x-tar".to_owned();
        served.send("POST", "/api/v1/campaigns", &[token.clone(), kind], &bytes)
    };
    let tar = |arguments: &str| {
        let script = format!("cd {} && tar {arguments}", place.path().display());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("tar runs");
        assert!(output.status.success(), "{arguments}: {}", common::told(&output));
    };
    let text = "inputs: [data]\nrun: cat data/model.txt\nvariables: {x: [1, 2]}\ndesign: grid\noutputs: {scale: 'scale ([0-9]+)'}\n";
    std::fs::write(place.path().join("campaign.yaml"), format!("campaign: {}\n{text}", place.name("c")))
        .expect("a file");
    std::fs::create_dir(place.path().join("data")).expect("a folder");
    std::fs::write(place.path().join("data/model.txt"), "scale 5\n").expect("an input");
    tar("czf good.tgz campaign.yaml data");
    let made = send("good.tgz");
    assert_eq!(made.status, 201, "{}", made.text());
    let path = format!("/api/v1/campaigns/{}", made.json()["id"].as_str().expect("a name"));
    is_ok(&served.call("POST", &format!("{path}/start"), None), 202);
    await_state(&served, &path, "ended");
    let rows = served.call("GET", &format!("{path}/results"), None).json();
    assert_eq!((&rows["rows"][0][2], &rows["rows"][1][2]), (&json!(5), &json!(5)), "{rows}");
    is_ok(&served.call("DELETE", &path, None), 204);

    std::os::unix::fs::symlink("/etc", place.path().join("etc")).expect("a link");
    std::fs::hard_link(place.path().join("campaign.yaml"), place.path().join("again")).expect("a link");
    std::fs::write(place.path().join("bad.tar"), [7_u8; 2000]).expect("a file");
    tar("cf link.tar campaign.yaml etc");
    tar("cf hard.tar campaign.yaml again");
    tar("cPf up.tar campaign.yaml --transform='s,^data/,../../up/,' data/model.txt");
    tar("cPf twice.tar campaign.yaml campaign.yaml");
    tar("cf none.tar data");
    tar("cf short.tar campaign.yaml data && head -c 700 short.tar > cut.tar");
    for archive in ["link.tar", "hard.tar", "up.tar", "twice.tar", "none.tar", "bad.tar", "cut.tar"] {
        let answer = send(archive);
        assert_eq!(answer.status, 400, "{archive}: {}", answer.text());
        assert!(!answer.text().contains(&*place.path().to_string_lossy()), "{archive}: {}", answer.text());
    }
    assert_eq!(std::fs::read_dir(place.path().join("slipway-campaigns")).expect("the folder").count(), 0);
    assert!(!place.path().join("up").exists());
}

#[test]
fn beyond_this_machine_it_takes_tls_and_tokens() {
    let place = Place::new();
    let words = place.fails(2, ["campaign", "serve", "--listen", "0.0.0.0:0"]);
    assert!(words.contains("without TLS") && words.contains("Hint: "), "{words}");
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
                  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out chain.pem";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(place.path()).output();
    assert!(made.expect("openssl runs").status.success());
    let words = place.fails(2, ["campaign", "serve", "--listen", "0.0.0.0:0", "--tls", "chain.pem", "key.pem"]);
    assert!(words.contains("without tokens"), "{words}");
    let words = place.fails(2, ["campaign", "serve", "--listen", "127.0.0.1:0", "--tls", "key.pem", "none.pem"]);
    assert!(words.contains("Hint: "), "{words}");
    let served = Served::new(&place, &["--tls", "chain.pem", "key.pem"]);
    assert!(served.url.starts_with("https://127.0.0.1:"), "{}", served.url);
    let curl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("curl");
        place.furnish(&mut command);
        let token = format!("Authorization: Bearer {}", served.token);
        let base = ["--silent", "--show-error", "--cacert", "chain.pem", "-H", token.as_str()];
        command.args(base).args(arguments).output().expect("curl runs")
    };
    let address = format!("https://{}/api/v1/session", served.address);
    let output = curl(&["-i", &address]);
    let text = common::told(&output);
    assert!(
        output.status.success() && text.contains("printed") && text.to_lowercase().contains("strict-transport"),
        "{text}"
    );
    assert!(!curl(&["--tls-max", "1.2", &address]).status.success(), "an older TLS is refused");
    assert!(!curl(&[&address.replace("https", "http")]).status.success(), "and so is none");
}
