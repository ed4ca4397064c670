// Package rest answers requests about Traffic Metrics as an API server would: in the draft's group and its alias, and in
// the released form. Whoever serves it, alone or behind a Kubernetes API server, decides who may ask; it judges no
// client, and asks nobody but a metrics.Store.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/visible"
)

// Bounds of what is answered.
const (
	// MaxConcurrent is how many requests a Handler answers at a time, Custom's among them; further ones get 429.
	MaxConcurrent = 16
	// Timeout is how long the Store may take; then the answer is 504.
	Timeout = 10 * time.Second
)

// Handler answers GET and HEAD below /apis:
//
//	/apis, /apis/GROUP, /apis/GROUP/VERSION                  the groups and their kinds
//	/apis/GROUP/VERSION/KIND                                 a list, of all namespaces
//	/apis/GROUP/VERSION/namespaces/NS/KIND[/NAME[/edges]]    a list, an object, its edges
//	/apis/GROUP/VERSION/namespaces/NAME[/edges]              the same of a namespace; likewise of nodes
//
// With Tap, KIND/NAME/tap, also below GROUP/VERSION/watch, has what telemetry.WriteTap writes, and the parameters of
// telemetry.ParseTapQuery.
//
// Parameters of the others are labelSelector; window, how long to look back, a duration (default DefaultWindow); and, of edges, kind:
// in terms of which objects the other sides are told. limit is ignored: a list is whole, up to metrics.MaxItems. Answers
// are JSON; a client that asks for it (Accept) gets a Table, which kubectl prints, or the groups in their newer form.
// Errors are a Status.
type Handler struct {
	// Index returns what is known of objects now; nil if nothing is known yet.
	Index func() *metrics.Index
	Store metrics.Store
	// Shown, if set, says in which of some namespaces the sender of a request, whose context it gets, may see names
	// (metrics.Selection). nil means in all.
	Shown func(ctx context.Context, namespaces []string) (shown func(namespace string) bool, err error)
	// Missing, if set, says what of the traffic is not in answers at present, in a line; "" if nothing is known to be missing.
	Missing func() string
	// Custom, if set, answers below its group.
	Custom *Custom
	// Tap, if set, serves requests as they end, those of an object, which of says whose they are. An error is one before
	// it answered: that of of, or its own.
	Tap func(w http.ResponseWriter, r *http.Request, q telemetry.TapQuery, of telemetry.TapOf) error

	busy atomic.Int32
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if parts, ok := pathParts(r.URL.EscapedPath()); ok && len(parts) > 0 && parts[0] == CustomGroup && h.Custom != nil {
		code, body := respond(&h.busy, w.Header(), r, h.Custom.answer, h.Missing)
		write(w, code, body)
		return
	}
	if t, ok := parsePath(r.URL.EscapedPath()); ok && t.tap {
		if err := h.tap(w, r, t); err != nil {
			code, body := encode(statusOf(err))
			write(w, code, body)
		}
		return
	}
	code, body := respond(&h.busy, w.Header(), r, h.answer, h.Missing)
	write(w, code, body)
}

func write(w http.ResponseWriter, code int, body []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", whole.contentType())
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(body) // which a server leaves out of answers to HEAD
}

// respond returns a response's status and body, and adds what further fields it has. busy counts those that are answered.
// missing may be nil.
func respond(busy *atomic.Int32, header http.Header, r *http.Request, answer func(*http.Request) (object any, as form, err error), missing func() string) (code int, body []byte) {
	defer busy.Add(-1)
	if busy.Add(1) > MaxConcurrent {
		header.Set("Retry-After", "1")
		return encode(statusOf(errBusy))
	}
	object, as, err := answer(r)
	switch {
	case errors.Is(err, errMethod):
		header.Set("Allow", "GET, HEAD")
		fallthrough
	case err != nil:
		return encode(statusOf(err))
	}
	if list, ok := object.(metav1.ListInterface); ok && list.GetRemainingItemCount() != nil {
		warn(header, fmt.Sprintf("%d items are left out: the list has the first %d", *list.GetRemainingItemCount(), metrics.MaxItems))
	}
	if missing != nil && measured(object) {
		if text := missing(); text != "" {
			warn(header, text)
		}
	}
	header.Set("Content-Type", as.contentType())
	return encode(object)
}

// warn adds what kubectl prints beside an answer (RFC 7234 §5.5). The text has no quotes.
func warn(header http.Header, text string) { header.Add("Warning", fmt.Sprintf(`299 - "%s"`, text)) }

// measured reports whether an answer tells traffic, and not what can be asked for.
func measured(object any) bool {
	switch object.(type) {
	case *api.TrafficMetrics, *api.TrafficMetricsList, *metav1.Table, *custom.MetricValueList:
		return true
	}
	return false
}

func encode(object any) (code int, body []byte) {
	code = http.StatusOK
	if status, ok := object.(*metav1.Status); ok {
		code = int(status.Code)
	}
	body, err := json.Marshal(object)
	if err != nil {
		panic("rest: an answer cannot be written as JSON: " + err.Error()) // there is nothing in it that cannot
	}
	return code, append(visible.JSON(body), '\n')
}

// errPath is about a path that names nothing.
var errPath = errors.New("the server could not find the requested resource")

// errMethod is about a method that is not served, errAccept about a client that reads no JSON.
var (
	errMethod = errors.New("only GET and HEAD are served")
	errAccept = errors.New("only the following media types are accepted: application/json")
)

// errBusy and errEarly are about requests that may be repeated.
var (
	errBusy  = errors.New("too many requests are being answered, ask again later")
	errEarly = errors.New("the objects are not known yet, ask again later")
)

// errTap is about a tap of somebody who may not know all who are in it.
var errTap = errors.New("a tap shows who talks to whom in all namespaces, and you may not tap in all of them")

// answer returns the object that answers a request, and its form.
func (h *Handler) answer(r *http.Request) (object any, as form, err error) {
	t, ok := parsePath(r.URL.EscapedPath())
	switch {
	case !ok:
		return nil, whole, errPath
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return nil, whole, errMethod
	}
	var offered []form
	switch {
	case t.of != nil:
		offered = []form{table}
	case t.group == nil:
		offered = []form{discovery}
	}
	if as, ok = accepted(r.Header, offered...); !ok {
		return nil, whole, errAccept
	}
	switch {
	case as == discovery:
		return h.discoverAll(), as, nil
	case t.of == nil:
		return h.discover(t), as, nil
	}
	s, fault := parseQuery(t, r.URL.RawQuery)
	if fault != nil {
		return nil, whole, fault
	}
	s.Shown = h.Shown
	if object, err = h.ask(r.Context(), t, s.Selection); err != nil || as == whole {
		return object, as, err
	}
	object, err = tabled(object, t.edges, s.include)
	return object, as, err
}

// ask returns the object or list that a path names.
func (h *Handler) ask(ctx context.Context, t target, s metrics.Selection) (any, error) {
	x := h.Index()
	if x == nil {
		return nil, errEarly
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch {
	case t.edges:
		list, err := x.Edges(ctx, h.Store, *t.of, t.namespace, t.name, s)
		return t.group.list(list, true), found(t, err)
	case t.name != "":
		one, err := x.Get(ctx, h.Store, *t.of, t.namespace, t.name, s.Window)
		return t.group.object(one), found(t, err)
	}
	list, err := x.List(ctx, h.Store, *t.of, t.namespace, s)
	return t.group.list(list, false), found(t, err)
}

// object is in the form of the group.
func (g *group) object(one api.TrafficMetrics) *api.TrafficMetrics {
	if g.released {
		one = one.Released()
	}
	one.APIVersion = g.String()
	return &one
}

// list is object for lists. Of edges, the released form has nil for unknown others, as it has for all traffic of an
// object; in a list of edges the direction then stays what it is.
func (g *group) list(list api.TrafficMetricsList, edges bool) *api.TrafficMetricsList {
	own := list.Items
	if g.released {
		list = list.Released()
	}
	list.APIVersion = g.String()
	for i := range list.Items {
		list.Items[i].APIVersion = list.APIVersion
		if edges {
			list.Items[i].Edge.Direction = own[i].Edge.Direction
		}
	}
	return &list
}

// absent is an object that does not exist.
type absent struct {
	schema.GroupResource
	name string
}

func (a *absent) Error() string { return fmt.Sprintf("%s %q not found", a.GroupResource, a.name) }

// found adds to the error about a missing object where it was looked for.
func found(t target, err error) error {
	var missing *metrics.Missing
	if errors.As(err, &missing) {
		return &absent{schema.GroupResource{Group: t.group.name, Resource: t.of.Plural}, t.name}
	}
	return err
}

// maxMessage bounds a Status's message in bytes.
const maxMessage = 1000

// statusOf is an error as an API server tells it.
func statusOf(err error) *metav1.Status {
	var missing *absent
	var parameter *fault
	var valueless *noMetric
	out := metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	switch {
	case errors.As(err, &missing):
		out = apierrors.NewNotFound(missing.GroupResource, missing.name).ErrStatus
	case errors.As(err, &parameter):
		out.Code, out.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
		out.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: parameter.parameter, Message: bounded(parameter.text)}}}
	case errors.Is(err, errPath), errors.As(err, &valueless):
		out.Code, out.Reason, out.Details = http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{}
	case errors.Is(err, errMethod):
		out.Code, out.Reason = http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed
	case errors.Is(err, errAccept):
		out.Code, out.Reason = http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable
	case errors.Is(err, telemetry.ErrTapSides):
		out.Code, out.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	case errors.Is(err, errTap):
		out.Code, out.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
	case errors.Is(err, errBusy), errors.Is(err, telemetry.ErrTaps):
		out.Code, out.Reason, out.Details = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, &metav1.StatusDetails{RetryAfterSeconds: 1}
	case errors.Is(err, context.DeadlineExceeded):
		out.Code, out.Reason = http.StatusGatewayTimeout, metav1.StatusReasonTimeout
		out.Message = fmt.Sprintf("the store of metrics did not answer within %v", Timeout)
	default: // the Store's, or errEarly
		out.Code, out.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	}
	out.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	out.Message = bounded(out.Message)
	return &out
}

func bounded(s string) string {
	if s = visible.Text(s); len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
