target "web" {
	address = "10.0.0.7"
	probe "readiness" {
		tcp { port = 80 }
		period	=	5
	}
}
