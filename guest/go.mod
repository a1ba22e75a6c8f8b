module github.com/sonde-probe/sonde/guest

go 1.26.0
