package rest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weirmesh/weir/internal/telemetry"
)

// tapResource is the sub-resource of requests as they end. The specification has none such. tapKind is what discovery
// calls its answers, which are lines and no objects.
const tapResource, tapKind = "tap", "TrafficTap"

// watchPrefix before a path makes its verb "watch", to an API server: it cuts off other requests after a minute.
const watchPrefix = "watch"

// tap answers with the requests of an object, or returns an error before it has answered.
func (h *Handler) tap(w http.ResponseWriter, r *http.Request, t target) error {
	switch {
	case h.Tap == nil:
		return errPath
	case r.Method != http.MethodGet:
		return errMethod
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &fault{"query", "is not a valid query: " + err.Error()}
	}
	q, err := telemetry.ParseTapQuery(query)
	if err != nil {
		return &fault{"query", err.Error()}
	}
	return h.Tap(w, r, q, func(ctx context.Context) (telemetry.TapSides, error) { return h.tapSides(ctx, t) })
}

// tapSides are those of an object, for who may see all that a tap of them shows.
func (h *Handler) tapSides(ctx context.Context, t target) (telemetry.TapSides, error) {
	if h.Shown != nil {
		shown, err := h.Shown(ctx, []string{""}) // what is in no namespace is for those who may see all
		switch {
		case err != nil:
			return nil, err
		case !shown(""):
			return nil, errTap
		}
	}
	x := h.Index()
	if x == nil {
		return nil, errEarly
	}
	sides, err := x.Sides(*t.of, t.namespace, t.name)
	if err != nil {
		return nil, found(t, err)
	}
	return sides, nil
}
