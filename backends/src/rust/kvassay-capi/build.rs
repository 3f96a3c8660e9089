//! The build id: what the build hook gives, or that nobody did.

fn main() {
    println!("cargo::rerun-if-env-changed=KVASSAY_BUILD_ID");
    let id = std::env::var("KVASSAY_BUILD_ID").unwrap_or_else(|_| "built by hand".into());
    println!("cargo::rustc-env=KVASSAY_BUILD_ID={id}");
}
