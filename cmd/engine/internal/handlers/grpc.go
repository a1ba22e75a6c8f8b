package handlers

import (
	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/config"
)

// grpcSchema is the schema of grpc blocks. It is declared here because the plugin is not read before its first use.
var grpcSchema = config.Schema{
	Doc: "asks a gRPC server for its health (grpc.health.v1)",
	Fields: []config.Field{
		{Name: "port", Type: config.String, Required: true, Doc: "a number from 1 to 65535, or the name of one of the target's ports"},
		{Name: "service", Type: config.String, Unset: "the server as a whole", Doc: "the service to check"},
		{Name: "authority", Type: config.String, Unset: "the address that is dialled", Doc: "the :authority of the call"},
		{Name: "metadata", Type: config.StringMap, Sensitive: true, Unset: "none", Doc: "metadata of the call; values of names that end in -bin are base64"},
		{Name: "tls", Type: config.Block, Doc: "call over TLS", Block: &config.Schema{Doc: "call over TLS", Fields: []config.Field{
			{Name: "server_name", Type: config.String, Unset: "the host that is dialled", Doc: "host name that the certificate must have"},
			{Name: "verify", Type: config.Bool, Default: true, Doc: "whether the certificate must be valid; false accepts any"},
			{Name: "ca_pem", Type: config.String, Unset: "those of the engine's machine", Doc: "certificate authorities to trust, as PEM"},
			{Name: "cert_pem", Type: config.String, Unset: "none", Doc: "client certificate, as PEM"},
			{Name: "key_pem", Type: config.String, Sensitive: true, Unset: "none", Doc: "key of the client certificate, as PEM"},
		}}},
	},
}

// GRPC returns the built-in handler of grpc blocks, for configurations without a plugin of that name. It may dial only the
// probed target.
func (p *Plugins) GRPC(e config.Engine) (config.Handler, error) {
	module, err := embedded.GRPC()
	if err != nil {
		return config.Handler{}, err
	}
	block := config.Plugin{Name: "grpc", Source: "built in", Settings: ownGrant}
	return p.Handler(e, block, module)
}
