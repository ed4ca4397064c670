package aggregated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/visible"
)

// maxUnderWay is how many requests are answered at a time; further ones get 429. Those that the API server did not send
// are answered at once, and not counted.
const maxUnderWay = 128

// API serves a Handler to those whom the API server lets it be served to. It does so while Run runs. Fields are set before
// it is used.
type API struct {
	// Client is the API server: it says how it identifies itself, and reviews rights.
	Client client.Client
	// Handler answers requests that are allowed. Shown is for it.
	Handler http.Handler
	Logger  *slog.Logger

	proxy    atomic.Pointer[frontProxy]
	rights   rights
	underWay atomic.Int64
}

// Ready reports whether requests can be answered: it is known how the API server identifies itself.
func (a *API) Ready() bool { return a.proxy.Load() != nil }

// paths reads what a request is about, as the API server did that sent it.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proxy := a.proxy.Load()
	if proxy == nil {
		refuse(w, apierrors.NewServiceUnavailable("it is not known yet how the API server identifies itself"))
		return
	}
	who, ok := proxy.user(r)
	if !ok {
		if r.ProtoMajor == 2 {
			w.Header().Set("Connection", "close") // who is nobody keeps no connection of this kind
		}
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	defer a.underWay.Add(-1)
	if a.underWay.Add(1) > maxUnderWay {
		w.Header().Set("Retry-After", "1")
		refuse(w, apierrors.NewTooManyRequests("too many requests are being answered, ask again later", 1))
		return
	}
	what, err := paths.NewRequestInfo(r)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	q := &question{api: a, user: who, about: what}
	if err := q.authorized(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	a.Handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), questionKey{}, q)))
}

// question is a request of somebody.
type question struct {
	api   *API
	user  user.Info
	about *request.RequestInfo
}

// questionKey is that of the question in its context.
type questionKey struct{}

// authorized returns an error of an API server if the one who asks may not.
func (q *question) authorized(ctx context.Context) error {
	if privileged(q.user) {
		return nil
	}
	review := subject(q.user)
	if q.about.IsResourceRequest {
		review.ResourceAttributes = q.attributes(q.about.Namespace, q.about.Name)
	} else {
		review.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: q.about.Path, Verb: q.about.Verb}
	}
	switch allowed, reason, err := q.api.rights.review(ctx, q.api.Client, review); {
	case err != nil:
		return apierrors.NewServiceUnavailable(err.Error())
	case !allowed:
		return q.forbidden(reason)
	}
	return nil
}

// attributes are those of what is asked for, at another place.
func (q *question) attributes(namespace, name string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: q.about.Verb, Group: q.about.APIGroup, Version: q.about.APIVersion, Resource: q.about.Resource, Subresource: q.about.Subresource,
		Namespace: namespace, Name: name,
	}
}

// forbidden says what one may not, in the words of an API server.
func (q *question) forbidden(reason string) error {
	what := fmt.Sprintf("path %q", q.about.Path)
	if i := q.about; i.IsResourceRequest {
		resource := i.Resource
		if i.Subresource != "" {
			resource += "/" + i.Subresource
		}
		where := "at the cluster scope"
		if i.Namespace != "" {
			where = fmt.Sprintf("in the namespace %q", i.Namespace)
		}
		what = fmt.Sprintf("resource %q in API group %q %s", resource, i.APIGroup, where)
	}
	text := fmt.Sprintf("User %q cannot %s %s", q.user.GetName(), q.about.Verb, what)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: q.about.APIGroup, Resource: q.about.Resource}, q.about.Name, errors.New(text))
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		panic("aggregated: a Status cannot be written as JSON: " + err.Error()) // there is nothing in it that cannot
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(append(visible.JSON(body), '\n')) // the asker may have left
}
