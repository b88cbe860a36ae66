"""Sends what OpenStudio's client sends, in its order, and holds the answers against what it reads: `client.py URL TOKEN`."""

import time
import uuid

from calls import action, archive, call, upload


def document(analysis, name):
    problem = {"analysis_type": "lhs", "algorithm": {"number_of_samples": 4, "seed": 7}, "workflow": []}
    return {"analysis": {"uuid": analysis, "_id": analysis, "name": name, "display_name": name, "problem": problem}}


assert call("GET", "/status.json")["status"]["awake"]
assert call("GET", "/projects.json") == []
project = call("POST", "/projects.json", {"project": {"name": "retrofit"}}, expect=201)["_id"]
assert [one["_id"] for one in call("GET", "/projects.json")] == [project]

analysis = str(uuid.uuid4())
made = call("POST", f"/projects/{project}/analyses.json", document(analysis, "house"), expect=201)
assert made["_id"] == analysis, made
assert call("GET", f"/analyses/{analysis}/status.json")["analysis"]["status"] == "na"
upload(analysis, archive({"weather/site.epw": "hot\n", "measures/add/measure.py": "pass\n"}))
# The first start makes the points, the second runs them.
answer = action(analysis, "start", "lhs")
assert answer["code"] == 200 and answer["analysis"]["_id"] == analysis, answer
status = call("GET", f"/analyses/{analysis}/status.json")["analysis"]
assert status["status"] == "queued" and status["total_datapoints"] == 4 and len(status["data_points"]) == 4, status
assert action(analysis, "start", "batch_run")["code"] == 200
deadline = time.monotonic() + 60
while (status := call("GET", f"/analyses/{analysis}/status.json")["analysis"])["status"] != "completed":
    assert time.monotonic() < deadline, status
    time.sleep(0.05)
assert [job["analysis_type"] for job in status["jobs"]] == ["lhs", "batch_run"], status
messages = sorted(point["status_message"] for point in status["data_points"])
assert messages == ["completed normal"] * 3 + ["datapoint failure"], messages
assert {point["status"] for point in status["data_points"]} == {"completed"}
one = call("GET", "/analyses/status.json?jobs=completed")
assert one["analysis"]["id"] == analysis and len(one["analysis"]["data_points"]) == 4, one
assert call("GET", f"/analyses/{analysis}/status.json?jobs=queued")["analysis"]["data_points"] == []
assert call("GET", f"/analyses/{analysis}.json")["analysis"]["problem"]["analysis_type"] == "lhs"
assert [each["_id"] for each in call("GET", f"/projects/{project}.json")["analyses"]] == [analysis]

data = call("GET", f"/analyses/{analysis}/analysis_data.json")
assert len(data["data"]) == 3 and {"name": "value", "units": "kWh", "output": True} in data["variables"], data
csv = call("GET", f"/analyses/{analysis}/download_data.csv?export=true")
assert len(csv.splitlines()) == 4 and csv.startswith("point,x,value"), csv
assert call("GET", f"/analyses/{analysis}/variables/download_variables.csv").startswith("name,output,units")
done = next(point for point in status["data_points"] if point["status_message"] == "completed normal")
point = call("GET", f"/data_points/{done['_id']}.json")["data_point"]
assert point["results"]["value"] == point["set_variable_values"]["x"], point
out = call("GET", f"/data_points/{done['_id']}/download_result_file?filename=slipway.stdout")
assert out == f"hot\nvalue {point['results']['value']}\n", out
call("GET", f"/data_points/{done['_id']}/download_result_file?filename=../../campaign.db", expect=404)
failed = next(point for point in status["data_points"] if point["status_message"] == "datapoint failure")
assert "broken" in str(call("GET", f"/data_points/{failed['_id']}.json")["data_point"]["sdp_log_file"])
assert call("PUT", f"/data_points/{failed['_id']}/run")["again"]
call("POST", f"/analyses/{analysis}/data_points.json", {"data_point": {}}, expect=409)

# A second analysis: points of one's own before the start, hostile archives, a refusal by name, and a stop.
other = str(uuid.uuid4())
call("POST", f"/projects/{project}/analyses.json", document(other, "refused"), expect=201)
call("POST", f"/projects/{project}/analyses.json", document(other, "refused"), expect=409)
call("POST", f"/analyses/{other}/data_points/batch_upload.json", {"data_points": [{"data_point": {}}, {"data_point": {}}]}, expect=201)
upload(other, b"no archive", expect=400)
upload(other, archive({"../../up": "x"}))
assert "refuses `refused`" in str(action(other, "start", "lhs", expect=400))
third = str(uuid.uuid4())
call("POST", f"/projects/{project}/analyses.json", document(third, "slow"), expect=201)
upload(third, archive({"../../up": "x", "weather/site.epw": "hot\n"}))
assert "leaves the analysis" in str(action(third, "start", "lhs", expect=400))
upload(third, archive({"weather/site.epw": "hot\n"}))
action(third, "start", "lhs")
action(third, "stop", "lhs")
stopped = call("GET", f"/analyses/{third}/status.json")["analysis"]
assert stopped["status"] == "completed" and {each["status_message"] for each in stopped["data_points"]} == {"datapoint canceled"}, stopped
assert len(call("GET", "/analyses/status.json")["analyses"]) == 3
deadline = time.monotonic() + 60
while call("GET", f"/analyses/{analysis}/status.json")["analysis"]["status"] != "completed":
    assert time.monotonic() < deadline
    time.sleep(0.05)
while True:
    # The coordinator of the retry may still bring its lab down.
    try:
        call("DELETE", f"/projects/{project}.json", expect=204)
        break
    except AssertionError as error:
        assert "conflict" in str(error) and time.monotonic() < deadline, error
        time.sleep(0.05)
assert call("GET", "/projects.json") == []
call("GET", f"/analyses/{analysis}/status.json", expect=404)
