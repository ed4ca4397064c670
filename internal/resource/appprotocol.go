package resource

import (
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// AppProtocol is the meaning of a Service port's appProtocol for an HTTP proxy.
type AppProtocol struct {
	// Protocol is the model's protocol of the service.
	Protocol model.Protocol
	// TLS means that the port requires TLS, which needs a BackendTLSPolicy.
	TLS bool
	// WebSocket means that the port only speaks HTTP/1.1 with upgrades, so that gRPC cannot reach it.
	WebSocket bool
}

// appProtocols has the standard names of KEP-3726 and those of the IANA registry in common use, in lower case.
var appProtocols = map[string]AppProtocol{
	"":                  {Protocol: model.HTTP},
	"http":              {Protocol: model.HTTP},
	"http/1.1":          {Protocol: model.HTTP},
	"grpc-web":          {Protocol: model.HTTP},
	"ws":                {Protocol: model.HTTP, WebSocket: true},
	"kubernetes.io/ws":  {Protocol: model.HTTP, WebSocket: true},
	"h2c":               {Protocol: model.H2C},
	"http2":             {Protocol: model.H2C},
	"grpc":              {Protocol: model.H2C},
	"kubernetes.io/h2c": {Protocol: model.H2C},
	"https":             {Protocol: model.HTTP, TLS: true},
	"wss":               {Protocol: model.HTTP, TLS: true, WebSocket: true},
	"kubernetes.io/wss": {Protocol: model.HTTP, TLS: true, WebSocket: true},
}

// ParseAppProtocol reads spec.ports[].appProtocol of a Service; nil means plain HTTP. It reports false for a protocol
// an HTTP proxy does not speak or does not know.
func ParseAppProtocol(written *string) (AppProtocol, bool) {
	name := ""
	if written != nil {
		name = *written
	}
	p, ok := appProtocols[strings.ToLower(name)]
	return p, ok
}
