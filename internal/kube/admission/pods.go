package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/visible"
)

// PodsPath is where API servers have pods injected, and FinalPodsPath where they ask about them again, after all others
// who may have changed them. SelectedPodsPath and FinalSelectedPodsPath are the same for pods of namespaces that have
// TLSConfigs.
const (
	PodsPath              = "/admit/pods"
	FinalPodsPath         = "/admit/final-pods"
	SelectedPodsPath      = "/admit/selected-pods"
	FinalSelectedPodsPath = "/admit/final-selected-pods"
)

// Pods puts sidecars into pods that are about to be stored, and refuses those that ask for one and cannot have it, or have
// lost it. At the first two paths API servers ask only about pods for which their namespace asks, or they themselves: the
// webhooks' selectors say that, so that nothing needs to be known here, and nothing can be out of date. At the others what
// Selecting says counts as if the namespace asked.
type Pods struct {
	Settings *inject.Settings
	// Selecting returns the names of the TLSConfigs of a namespace that select pods with labels, as the API server has them
	// now.
	Selecting func(ctx context.Context, namespace string, labels map[string]string) ([]string, error)

	injected, excluded, refused atomic.Uint64
}

// PodStats count pods since the start.
type PodStats struct {
	// Injected counts pods that got a sidecar, again if they were asked about again. Excluded counts those that run without,
	// Refused those that may not be stored, by either webhook.
	Injected, Excluded, Refused uint64
}

// Stats returns the counts. It may be called from any goroutine.
func (p *Pods) Stats() PodStats {
	return PodStats{p.injected.Load(), p.excluded.Load(), p.refused.Load()}
}

// asked are the labels of a namespace whose pods are asked about.
var asked = map[string]string{inject.Label: inject.Enabled}

// Inject answers an AdmissionReview with a change of the pod. An error says why the body is none, or not about a pod.
func (p *Pods) Inject(_ context.Context, body []byte) ([]byte, error) {
	r, pod, err := readPod(body)
	if err != nil {
		return nil, err
	}
	return p.inject(r, pod, asked)
}

// InjectSelected does so for a pod of a namespace that has TLSConfigs.
func (p *Pods) InjectSelected(ctx context.Context, body []byte) ([]byte, error) {
	r, pod, err := readPod(body)
	if err != nil {
		return nil, err
	}
	labels, _, err := p.asking(ctx, r, pod)
	if err != nil {
		return p.unknown(r, err)
	}
	return p.inject(r, pod, labels)
}

// inject answers for a pod whose namespace has labels.
func (p *Pods) inject(r *request, pod *corev1.Pod, labels map[string]string) ([]byte, error) {
	d := p.Settings.Pod(r.Namespace, labels, pod)
	switch d.Outcome {
	case inject.Refused:
		p.refused.Add(1)
		return answered(r.refuse("cannot have the sidecar that is asked for", d.Reasons))
	case inject.Excluded:
		p.excluded.Add(1)
		return answered(r.allow([]string{r.called() + " gets no sidecar: " + strings.Join(d.Reasons, "; ")}))
	case inject.Injected:
		p.injected.Add(1)
	}
	out, err := d.Apply(r.object)
	if err != nil {
		return nil, fmt.Errorf("request.object: %w", err)
	}
	response := r.allow(d.Notes)
	if all := patchOf(nil, "", r.object, out); len(all) > 0 {
		if response.Patch, err = json.Marshal(all); err != nil {
			return nil, err
		}
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
	}
	return answered(response)
}

// Final answers an AdmissionReview about the pod as it will be stored.
func (p *Pods) Final(_ context.Context, body []byte) ([]byte, error) {
	r, pod, err := readPod(body)
	if err != nil {
		return nil, err
	}
	return p.final(r, pod, asked)
}

// FinalSelected does so for a pod of a namespace that has TLSConfigs. One that opts out of a sidecar that it would have by a
// TLSConfig is stored, with a warning.
func (p *Pods) FinalSelected(ctx context.Context, body []byte) ([]byte, error) {
	r, pod, err := readPod(body)
	if err != nil {
		return nil, err
	}
	labels, selecting, err := p.asking(ctx, r, pod)
	switch {
	case p.Settings.Ask(r.Namespace, labels, pod).Outcome == inject.OptedOut:
		var warnings []string
		if len(selecting) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s gets no sidecar by TLSConfig %s: its label %s is %s", r.called(), selecting[0], inject.Label, inject.Disabled))
		}
		return answered(r.allow(warnings)) // whatever can be known
	case err != nil:
		return p.unknown(r, err)
	}
	return p.final(r, pod, labels)
}

// final answers for a pod whose namespace has labels.
func (p *Pods) final(r *request, pod *corev1.Pod, labels map[string]string) ([]byte, error) {
	if problems := p.Settings.Verify(r.Namespace, labels, pod); len(problems) > 0 {
		p.refused.Add(1)
		return answered(r.refuse("must not start without its sidecar", problems))
	}
	return answered(r.allow(nil))
}

// selectTime bounds the reading of a namespace's TLSConfigs: an API server waits 5 s for the whole answer.
const selectTime = 3 * time.Second

// asking returns the labels that the pod's namespace has, as far as this pod is concerned, and the TLSConfigs that select it.
// A pod whose own label asks needs none.
func (p *Pods) asking(ctx context.Context, r *request, pod *corev1.Pod) (labels map[string]string, selecting []string, err error) {
	if own, said := pod.Labels[inject.Label]; said && own != inject.Disabled {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, selectTime)
	defer cancel()
	if selecting, err = p.Selecting(ctx, r.Namespace, pod.Labels); len(selecting) > 0 {
		labels = asked
	}
	return labels, selecting, err
}

// unknown refuses a pod of which it cannot be known whether it is to have a sidecar.
func (p *Pods) unknown(r *request, err error) ([]byte, error) {
	p.refused.Add(1)
	return answered(r.refuse("cannot be stored while it is not known whether it is to have a sidecar", []string{"TLSConfigs of the namespace: " + err.Error()}))
}

func readPod(body []byte) (*request, *corev1.Pod, error) {
	r, err := read(body)
	if err != nil {
		return nil, nil, err
	}
	if r.Resource.Group != "" || r.Resource.Resource != "pods" || r.SubResource != "" || r.Operation != admissionv1.Create {
		return nil, nil, errors.New("request: only new pods are judged here")
	}
	pod, err := inject.Typed(r.object)
	if err != nil {
		return nil, nil, fmt.Errorf("request.object: %w", err)
	}
	return r, pod, nil
}

// refuse is the answer that the object may not be stored by a rule of the cluster, whatever is wrong with it.
func (r *request) refuse(what string, reasons []string) *admissionv1.AdmissionResponse {
	lines := []string{visible.Text(cut(r.called(), maxText)) + " " + what + ":"}
	for i, reason := range reasons {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("- and %d more", len(reasons)-i))
			break
		}
		lines = append(lines, "- "+cut(visible.Text(reason), 2*maxText))
	}
	return &admissionv1.AdmissionResponse{UID: r.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: strings.Join(lines, "\n"),
	}}
}
