package fed

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/telemetry"
)

// link is the way to a controller's feed.
type link struct{ controller, caFile, tokenFile string }

func (l *link) flags(f *pflag.FlagSet) {
	f.StringVar(&l.controller, "controller", "", "`host:port` of the controller's feed")
	f.StringVar(&l.caFile, "ca-file", "/var/run/weir/ca/ca.crt", "`file` with the CA certificates that sign the controller's, in PEM")
	f.StringVar(&l.tokenFile, "token-file", "/var/run/weir/token/token", "`file` with the token that identifies this proxy")
}

func (l *link) check() error {
	if _, _, err := net.SplitHostPort(l.controller); err != nil {
		return flags.Errorf("--controller %q: want HOST:PORT", l.controller)
	}
	return nil
}

// client returns what follows the feed for a data plane. The controller hears of the listeners that the data plane cannot
// serve; the log has what only the data plane finds out.
func (l *link) client(owner model.Owner, plane *dataplane.Plane, log *slog.Logger) *feed.Client {
	client := &feed.Client{Address: l.controller, Owner: owner, CAFile: l.caFile, TokenFile: l.tokenFile, Logger: log, LeftOut: plane.Server.LeftOut}
	client.Unserved = func() (out []feed.Unserved) {
		for _, u := range plane.Unserved() {
			out = append(out, feed.Unserved{Listener: u.Listener, Reason: fmt.Sprintf("port %d: %s", u.Port, u.Reason)})
		}
		return out
	}
	drops := finding.Teller{Log: log}
	plane.OnReport = func(r dataplane.Report) {
		client.Tell()
		drops.Tell(slices.DeleteFunc(slices.Clone(r.Standing().Findings), func(f finding.Finding) bool {
			return f.Code != finding.CodeDropped && f.Code != finding.CodeFailing // the control plane reports the others
		}))
	}
	plane.Pages = append(plane.Pages, process.Page{
		Pattern: "GET " + telemetry.ReportPath, Index: telemetry.ReportPath, About: "what this proxy counted of its traffic with others, as /metrics has it", Open: true,
		Handler: http.HandlerFunc(plane.Metrics.ServeReport),
	})
	return client
}
