package resource

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
)

// portNames are what the names of ports say, up to their first "-".
var portNames = map[string]model.Protocol{
	"http": model.HTTP, "http2": model.H2C, "h2c": model.H2C, "grpc": model.H2C,
	"https": model.TCP, "tls": model.TCP, "tcp": model.TCP, "mysql": model.TCP, "mongo": model.TCP, "redis": model.TCP, "postgres": model.TCP, "amqp": model.TCP, "smtp": model.TCP,
}

// portNumbers are ports whose servers usually speak first, or no HTTP.
var portNumbers = []int32{25, 443, 587, 3306, 4444, 5432, 6379, 9300, 11211}

// ServedProtocol is what a port of a Service speaks to clients in a mesh: as its appProtocol says, whose TLS is none of the mesh's,
// else its name, else its number; it is HTTP, H2C or TCP, and empty if nothing says it.
func ServedProtocol(p *corev1.ServicePort) model.Protocol {
	if p.AppProtocol != nil && *p.AppProtocol != "" {
		return WrittenProtocol(p)
	}
	name, _, _ := strings.Cut(p.Name, "-")
	if known, ok := portNames[name]; ok {
		return known
	}
	if slices.Contains(portNumbers, p.Port) {
		return model.TCP
	}
	return ""
}

// WrittenProtocol is what the appProtocol of a port says that it speaks, HTTP, H2C or TCP; without one it is HTTP.
func WrittenProtocol(p *corev1.ServicePort) model.Protocol {
	app, ok := ParseAppProtocol(p.AppProtocol)
	if !ok || app.TLS {
		return model.TCP
	}
	return app.Protocol
}
