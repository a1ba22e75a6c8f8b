module "web" { source = "./web" }
