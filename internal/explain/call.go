package explain

import (
	"io"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/screen"
)

// Call says what becomes of a request or a connection at the one listener of a configuration, wherever it was sent.
func Call(cfg *model.Config, request *curl.Request) *Explanation {
	r := *request
	r.Port, r.Notes = cfg.Listeners[0].Port, nil
	return explain(cfg, ask(&r))
}

// PrintRoute writes what the rule that took a call does with it, or why none did, as text.
func (e *Explanation) PrintRoute(w io.Writer, on screen.Screen, origin func(model.Ref) finding.Origin) error {
	p := &printer{Screen: on, origin: origin}
	p.route(e)
	_, err := io.WriteString(w, p.String())
	return err
}

// NoEndpoint is why a backend without endpoints answers by itself.
const NoEndpoint = "the service has no endpoint"

// Share is the part of the requests that the backend gets, such as "25 %".
func (b *Backend) Share() string { return screen.Percent(b.Probability) }
