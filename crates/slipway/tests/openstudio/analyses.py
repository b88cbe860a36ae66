"""Starts analyses of measures at a server that makes campaigns of them: `analyses.py URL TOKEN`."""

import shutil
import uuid

from calls import action, archive, call, upload

ATTRIBUTES = {"lower_bounds": 2, "upper_bounds": 6, "modes": 3}
VARIABLE = {
    "argument": {"name": "depth", "value_type": "double", "value": "3"},
    "variable_type": "variable",
    "variable": True,
    "static_value": 3,
    "uncertainty_description": {
        "type": "uniform_uncertain",
        "attributes": [{"name": name, "value": value} for name, value in ATTRIBUTES.items()],
    },
}


def document(analysis):
    step = {
        "name": "overhangs",
        "measure_type": "RubyMeasure",
        "measure_definition_directory": "./measures/AddOverhangs",
        "arguments": [{"name": "facade", "value": "South"}],
        "variables": [VARIABLE],
    }
    problem = {
        "analysis_type": "lhs",
        "algorithm": {"number_of_samples": 4, "seed": 7, "failed_f_value": 1},
        "workflow": [step],
    }
    return {
        "analysis": {
            "_id": analysis,
            "name": "overhangs",
            "display_name": "Overhangs",
            "seed": {"file_type": "OSM", "path": "./seeds/office.osm"},
            "weather_file": {"file_type": "EPW", "path": "./weather/denver.epw"},
            "output_variables": [{"name": "overhangs.shade", "units": "m2"}],
            "problem": problem,
        }
    }


# As little as a look at them takes.
CONTENT = {
    "seeds/office.osm": "OS:Version,\n  {1},\n  3.11.0;\n",
    "weather/denver.epw": "LOCATION,Denver,-,USA,-,0,39.8,-104.7,-7,1650\nDATA PERIODS,1,1,Data,Sunday,1/1,12/31\n",
}


def made(*measure):
    analysis = str(uuid.uuid4())
    call("POST", f"/projects/{project}/analyses.json", document(analysis), expect=201)
    names = ["seeds/office.osm", "weather/denver.epw", *measure]
    upload(analysis, archive({name: CONTENT.get(name, "text") for name in names}))
    return analysis


def refused(analysis):
    text = str(action(analysis, "start", "lhs", expect=400))
    assert call("GET", f"/analyses/{analysis}/status.json")["analysis"]["status"] == "na"
    return text


project = call("POST", "/projects.json", {"project": {"name": "shades"}}, expect=201)["_id"]
analysis = made("measures/AddOverhangs/measure.py")
action(analysis, "start", "lhs")
status = call("GET", f"/analyses/{analysis}/status.json")["analysis"]
assert status["status"] == "queued" and status["total_datapoints"] == 4, status
points = [call("GET", f"/data_points/{point['_id']}.json")["data_point"] for point in status["data_points"]]
values = [point["set_variable_values"]["overhangs.depth"] for point in points]
# Each quarter of 2 to 6 has a point.
assert sorted(int(value) for value in values) == [2, 3, 4, 5], values
file = call("GET", f"/api/v1/campaigns/{analysis}/file")
assert "\n# otherwise: $.analysis.problem.algorithm.failed_f_value: a point that fails" in file, file

text = refused(made("measures/Other/measure.py"))
assert "$.analysis.problem.workflow[0]" in text and "measures/AddOverhangs is not among" in text, text
if shutil.which("openstudio") is None:
    text = refused(made("measures/AddOverhangs/measure.rb"))
    assert "measures in Ruby need the program `openstudio`" in text and "AddOverhangs" in text, text
    assert "use the workflow workflow.osw" in text, text
call("DELETE", f"/projects/{project}.json", expect=204)
