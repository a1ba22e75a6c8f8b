<<<<<<< HEAD
target "web" {
=======
target "api" {
>>>>>>> main
  address = "10.0.0.7"
}
