//! Routes of OpenStudio-server that its clients use, over campaigns: a project has analyses, and an analysis that was
//! started is a campaign of the analysis' id.

mod analyses;
mod drawer;
mod points;

use axum::extract::DefaultBodyLimit;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use crate::app::{Shared, aside};
use crate::body;
use crate::error::ApiError;
use crate::extract::{At, Said};
use crate::guard;
use drawer::{Drawer, id};

/// All routes, for callers with a token, which these clients send as the password of their server's address.
pub(crate) fn routes(app: &Shared) -> Router<Shared> {
    let inner = middleware::from_fn_with_state(app.clone(), guard::inner);
    let archive = usize::try_from(body::ARCHIVE).unwrap_or(usize::MAX);
    Router::new()
        .route("/status.json", get(awake))
        .route("/projects.json", get(projects).post(add_project))
        .route("/projects/{id}", get(project).delete(remove_project))
        .route("/projects/{id}/analyses.json", post(analyses::add))
        .route("/analyses/status.json", get(analyses::all))
        .route("/analyses/{id}", get(analyses::show))
        .route("/analyses/{id}/upload.json", post(analyses::upload).layer(DefaultBodyLimit::max(archive)))
        .route("/analyses/{id}/action.json", post(analyses::act))
        .route("/analyses/{id}/status.json", get(analyses::status))
        .route("/analyses/{id}/analysis_data.json", get(analyses::data))
        .route("/analyses/{id}/download_data.csv", get(analyses::csv))
        .route("/analyses/{id}/variables/download_variables.csv", get(analyses::variables))
        .route("/analyses/{id}/data_points.json", post(points::add))
        .route("/analyses/{id}/data_points/batch_upload.json", post(points::add_batch))
        .route("/data_points/{id}", get(points::show))
        .route("/data_points/{id}/download_result_file", get(points::file))
        .route("/data_points/{id}/run", put(points::run))
        .route("/data_points/{id}/result_files", delete(points::keep))
        .route("/data_points/{id}/upload_file", post(points::keep))
        .route_layer(inner)
}

async fn awake() -> Json<Value> {
    Json(json!({"status": {"awake": true}}))
}

async fn projects(State(app): State<Shared>) -> Result<Json<Value>, ApiError> {
    aside(move || Ok(Json(Value::Array(Drawer::new(&app).projects()?)))).await
}

async fn add_project(
    State(app): State<Shared>,
    Said(said): Said<Value>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name = said["project"]["name"].as_str().unwrap_or("project").chars().take(200).collect::<String>();
    aside(move || {
        let id = crate::tokens::secret()[..32].to_owned();
        let project = json!({"_id": id, "id": id, "name": name, "display_name": name});
        Drawer::new(&app).put("project", &id, &project)?;
        Ok((StatusCode::CREATED, Json(project)))
    })
    .await
}

async fn project(State(app): State<Shared>, At(name): At<String>) -> Result<Json<Value>, ApiError> {
    let id = id(&name)?;
    aside(move || {
        let drawer = Drawer::new(&app);
        let mut project = drawer.get("project", &id)?;
        let own = |analysis: &Value| analysis["project"] == id.as_str();
        let all = drawer.all("analysis")?.into_iter().filter(own);
        let all = all.map(|analysis| json!({"_id": analysis["_id"], "id": analysis["_id"], "name": analysis["name"]}));
        project["analyses"] = all.collect();
        Ok(Json(project))
    })
    .await
}

/// Deletes a project with its analyses, their campaigns and results.
async fn remove_project(State(app): State<Shared>, At(name): At<String>) -> Result<StatusCode, ApiError> {
    let project = id(&name)?;
    aside(move || {
        let drawer = Drawer::new(&app);
        drawer.get("project", &project)?;
        let all = drawer.all("analysis")?;
        for analysis in all.iter().filter(|analysis| analysis["project"] == project.as_str()) {
            let analysis = id(analysis["_id"].as_str().unwrap_or_default())?;
            if app.shelf.item(&analysis).is_ok() {
                app.shelf.delete(&analysis)?;
            }
            drawer.remove("analysis", &analysis)?;
        }
        drawer.remove("project", &project)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
