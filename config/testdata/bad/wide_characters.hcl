target "wéb 世界" {
	address = "10.0.0.1"
	probe "readiness" {
		tcp { port = 80 } # 😀
		/* 世界 */ perod = "1s"
	}
}
