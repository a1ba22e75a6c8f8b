module github.com/sonde-probe/sonde/examples/wasm-probes

go 1.26.0

require (
	github.com/apache/thrift v0.25.0
	github.com/coder/websocket v1.8.15
	github.com/go-sql-driver/mysql v1.10.1
	github.com/jackc/pgx/v5 v5.12.0
	github.com/miekg/dns v1.1.73
	github.com/sonde-probe/sonde v0.0.0
	github.com/sonde-probe/sonde/guest v0.0.0
	golang.org/x/net v0.59.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/tetratelabs/wazero v1.12.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/sonde-probe/sonde => ../..
	github.com/sonde-probe/sonde/guest => ../../guest
)
