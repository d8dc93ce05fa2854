module app

go 1.25.0

require (
	github.com/felixge/fgprof v0.9.5
	github.com/grafana/pyroscope-go v1.4.3
	github.com/grafana/pyroscope-go/godeltaprof v0.1.12
	go.starlark.net v0.0.0-20260908191801-89a6a09411d5
)
