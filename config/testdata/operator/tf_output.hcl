output "hosts" { value = 1 }
