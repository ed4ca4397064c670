package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/visible"
)

// PodsPath is where API servers have pods injected, and FinalPodsPath where they ask about them again, after all others
// who may have changed them.
const (
	PodsPath      = "/admit/pods"
	FinalPodsPath = "/admit/final-pods"
)

// Pods puts sidecars into pods that are about to be stored, and refuses those that ask for one and cannot have it, or have
// lost it. API servers ask only about pods for which their namespace asks, or they themselves: the webhooks' selectors say
// that, so that nothing needs to be known here, and nothing can be out of date.
type Pods struct {
	Settings *inject.Settings

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
	d := p.Settings.Pod(r.Namespace, asked, pod)
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
	if problems := p.Settings.Verify(r.Namespace, asked, pod); len(problems) > 0 {
		p.refused.Add(1)
		return answered(r.refuse("must not start without its sidecar", problems))
	}
	return answered(r.allow(nil))
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
