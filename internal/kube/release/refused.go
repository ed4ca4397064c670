package release

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// lasts is how long changes of a Rollout fail by what may pass by itself until its status says so.
	lasts = time.Minute
	// maxReason is the most bytes of an API server's reason that a status tells.
	maxReason = 700
)

// failure is a change that did not succeed.
type failure struct {
	// verb and object are the change, such as "update" and "Deployment web".
	verb, object string
	// status means that the change is that of a Rollout's status.
	status bool
	err    error
}

func (f *failure) Error() string { return f.verb + " " + f.object + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// refused reports whether the API server judged the change and does not accept it, so that to ask again does not help by
// itself, and is its answer.
func (f *failure) refused() (metav1.Status, bool) {
	answer := apierrors.APIStatus(nil)
	if !errors.As(f.err, &answer) || apierrors.HasStatusCause(f.err, corev1.NamespaceTerminatingCause) {
		return metav1.Status{}, false
	}
	s := answer.Status()
	switch s.Code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return s, false
	}
	return s, s.Code >= 400 && s.Code < 500
}

// change is what the failure says of which change it is.
func (f *failure) change() string { return f.verb + " " + f.object }

// why says why a change does not succeed, and what to do about it, as sentences.
func (f *failure) why() string {
	s, refused := f.refused()
	message := s.Message
	if message == "" {
		message = f.err.Error()
	}
	lead := "the API server refuses it: "
	if !refused {
		lead = "it has failed for a minute or longer: "
	}
	why := lead + strings.TrimRight(kube.Cut(strings.Join(strings.Fields(message), " "), maxReason), ". ") + "."
	if fix := fix(message); fix != "" {
		why += " To fix it, " + fix + "."
	}
	return why
}

// fix says what lets a change succeed that an API server refuses with a message; empty if that is not known.
func fix(message string) string {
	if _, quota, found := strings.Cut(message, "exceeded quota: "); found {
		name, _, _ := strings.Cut(quota, ",")
		return "raise the ResourceQuota " + word(name) + ", or remove some of what it counts"
	}
	if _, policy, found := strings.Cut(message, "ValidatingAdmissionPolicy '"); found {
		name, _, _ := strings.Cut(policy, "'")
		if strings.HasSuffix(name, ownPolicy) {
			return "store the object once as it is, such as by an annotation of yours: the policy is Weir's own, and denies what another admission webhook adds to the controller's change"
		}
		return "have the ValidatingAdmissionPolicy " + word(name) + " allow this change by Weir's controller"
	}
	if _, webhook, found := strings.Cut(message, "admission webhook \""); found {
		name, _, _ := strings.Cut(webhook, "\"")
		return "have the admission webhook " + word(name) + " allow this change by Weir's controller"
	}
	if _, webhook, found := strings.Cut(message, "failed calling webhook \""); found {
		name, _, _ := strings.Cut(webhook, "\"")
		return "see that the admission webhook " + word(name) + " can be reached, or remove it"
	}
	if strings.Contains(message, " is forbidden: User \"") && strings.Contains(message, "customresourcedefinitions") {
		return "grant the controller this right, as the chart does with " + workload.ChartValue
	}
	if strings.Contains(message, " is forbidden: User \"") {
		return "grant the controller this right, as the chart does with rollouts.enabled"
	}
	return ""
}

// ownPolicy ends the name of the chart's policy that holds the controller to what a release needs.
const ownPolicy = "-controller-releases"

// word is the name of an object in a message, of a bounded length.
func word(name string) string { return kube.Cut(strings.Join(strings.Fields(name), " "), 100) }

// obstruction is what keeps a Rollout from being carried on, as long as no attempt ends well.
type obstruction struct {
	// since is when the first of the attempts failed.
	since time.Time
	// change and reason are those that the status tells of, and why what it says of them; change is empty while it tells of
	// none.
	change string
	reason metav1.StatusReason
	why    string
}

// obstructed has the status of the Rollout tell of a change that does not succeed, and stores the draft.
func (t *turn) obstructed(ctx context.Context, err error) error {
	var f *failure
	if !errors.As(err, &f) || f.status || t.r == nil {
		return nil
	}
	if t.draft.version == "" { // it was stored in this turn, or there was none yet
		if !t.read() {
			return nil
		}
		t.draft.add(t, t.r.Status)
	}
	o := t.obstruct(f)
	status := rollout.CopyStatus(t.draft.status)
	if t.again() {
		status = t.draft.asStored()
	}
	var events []rollout.Event
	if o.change != "" {
		said := rollout.Obstruct(&status, o.change, o.why)
		if !strings.HasSuffix(t.draft.stored.Message, said) {
			events = append(events, rollout.Event{Reason: "ChangeRefused", Warning: true, Message: said})
		}
	}
	t.draft.add(t, status, events...)
	return t.store(ctx)
}

// again reports whether the draft says only that a change is tried again that did not succeed before. It is stored with what
// comes of it, so that no attempt writes a status. Who is cut off after a change that was accepted at last counts its grace
// period from the attempt that was told.
func (t *turn) again() bool {
	t.mu.Lock()
	_, failed := t.obstructions[t.name]
	t.mu.Unlock()
	return (failed || rollout.Obstructed(&t.draft.stored)) && len(t.draft.events) == 0 && rollout.Progress(t.draft.asStored(), t.draft.stored)
}

// asStored is the status of the draft with the time of the last action that is stored.
func (d *draft) asStored() rollouts.Status {
	s := rollout.CopyStatus(d.status)
	if rel, stored := s.Release(), d.stored.Release(); rel != nil && stored != nil {
		rel.LastUpdateTime = stored.LastUpdateTime
	}
	return s
}

// obstruct notes a failure, and returns what the status is to tell. While one change is refused for one reason it tells the
// same, whatever the words: whoever refuses it may use others each time. Of what may pass by itself it tells if that lasts.
func (t *turn) obstruct(f *failure) obstruction {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	o, there := t.obstructions[t.name]
	if !there {
		o.since = now
	}
	answer, refused := f.refused()
	if refused && (o.change != f.change() || o.reason != answer.Reason) || o.change == "" && now.Sub(o.since) >= lasts {
		o.change, o.reason, o.why = f.change(), answer.Reason, f.why()
	}
	t.obstructions[t.name] = o
	return o
}

// named is a cluster whose errors of changes are failures.
type named struct{ cluster }

func failed(verb string, u *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return &failure{verb: verb, object: u.GetKind() + " " + u.GetName(), err: err}
}

func (n named) Update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := n.cluster.Update(ctx, u)
	return out, failed("update", u, err)
}

func (n named) UpdateStatus(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := n.cluster.UpdateStatus(ctx, u)
	if err != nil {
		return nil, &failure{verb: "update", object: "the status of " + u.GetKind() + " " + u.GetName(), status: true, err: err}
	}
	return out, nil
}

func (n named) Create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := n.cluster.Create(ctx, u)
	return out, failed("create", u, err)
}

func (n named) Delete(ctx context.Context, u *unstructured.Unstructured) error {
	return failed("delete", u, n.cluster.Delete(ctx, u))
}

func (n named) Scale(ctx context.Context, rs *appsv1.ReplicaSet, replicas int32, annotation string) error {
	if err := n.cluster.Scale(ctx, rs, replicas, annotation); err != nil {
		return &failure{verb: "change the number of pods of", object: "ReplicaSet " + rs.Name, err: err}
	}
	return nil
}

func (n named) Evict(ctx context.Context, pod *corev1.Pod) error {
	if err := n.cluster.Evict(ctx, pod); err != nil {
		return &failure{verb: "evict", object: "Pod " + pod.Name, err: err}
	}
	return nil
}
