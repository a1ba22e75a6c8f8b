variable "hidden" {
  default   = ["hunter2"]
  sensitive = true
}
target "a" {
  address = "10.0.0.1"
  dynamic "probe" {
    for_each = []
    content {}
    content {}
  }
  dynamic "probe" {
    for_each = []
    iterator = "it"
    content {}
  }
  dynamic "probe" {
    for_each = []
    iterator = var
    content {}
  }
  dynamic "probe" {
    for_each = []
    labels   = "readiness"
    content {}
  }
  dynamic "probe" {
    for_each = var.hidden
    content {}
  }
  dynamic "probe" {
    for_each = ["x"]
    labels   = [["readiness"]]
    content {}
  }
  dynamic "probe" {
    for_each = range(1001)
    content {}
  }
  dynamic "restart_budget" {
    for_each = [1]
    content {}
  }
  probe "readiness" {
    dynamic "tcp" {
      for_each = [80, 81]
      content {
        port = tcp.value
      }
    }
  }
  probe "liveness" {
    dynamic "tcp" {
      for_each = 5
      content {
        port = tcp.value
      }
    }
  }
}
target "b" {
  for_each = {}
  adress   = each.value
  probe "readiness" {
    tcp {
      port = each.key
      prt  = 1
    }
    period = 5
  }
}
