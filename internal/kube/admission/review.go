package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/internal/visible"
)

const (
	// maxProblems is of an answer, and maxText the bytes of one: anyone can have written what they quote.
	maxProblems = 100
	maxText     = 512
	// maxWarnings is of an answer, and maxWarning the bytes of one: an API server cuts longer ones, and drops what comes
	// after the first 4 KiB.
	maxWarnings = 10
	maxWarning  = 256
)

// request is what an API server asks.
type request struct {
	*admissionv1.AdmissionRequest
	// object is what is to be stored, and old what it replaces; nil for an operation without it.
	object, old map[string]any
}

// read decodes an AdmissionReview of admission.k8s.io/v1.
func read(body []byte) (*request, error) {
	var review admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, fmt.Errorf("apiVersion and kind: must be %s AdmissionReview", want)
	}
	r := &request{AdmissionRequest: review.Request}
	if r.AdmissionRequest == nil || r.UID == "" {
		return nil, errors.New("request: is missing, or has no uid")
	}
	for _, o := range []struct {
		name   string
		raw    []byte
		wanted bool
		into   *map[string]any
	}{
		{"object", r.Object.Raw, r.Operation == admissionv1.Create || r.Operation == admissionv1.Update, &r.object},
		{"oldObject", r.OldObject.Raw, r.Operation == admissionv1.Update, &r.old},
	} {
		if !o.wanted {
			continue
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.raw, o.into); err != nil || *o.into == nil {
			return nil, fmt.Errorf("request.%s: must be an object", o.name)
		}
	}
	return r, nil
}

// called names the object that is asked about: "Rollout shop/web".
func (r *request) called() string {
	meta, _ := r.object["metadata"].(map[string]any)
	name := r.Name
	if text, _ := meta["name"].(string); name == "" {
		name = text
	}
	if prefix, _ := meta["generateName"].(string); name == "" {
		name = prefix + "..."
	}
	return r.Kind.Kind + " " + r.Namespace + "/" + name
}

// allow is the answer that the object may be stored.
func (r *request) allow(warnings []string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true, Warnings: warned(warnings)}
}

// deny is the answer that it may not, with all that is wrong. Code and reason are those of an object that an API server
// itself finds invalid.
func (r *request) deny(problems field.ErrorList) *admissionv1.AdmissionResponse {
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Name: r.Name, Group: r.Kind.Group, Kind: r.Kind.Kind},
	}
	lines := []string{visible.Text(cut(r.called(), maxText)) + " is not valid:"}
	for i, p := range problems {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("- and %d more", len(problems)-i))
			break
		}
		lines = append(lines, "- "+cut(visible.Text(p.Error()), maxText))
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(p.Type), Field: p.Field, Message: cut(visible.Text(p.ErrorBody()), maxText),
		})
	}
	status.Message = strings.Join(lines, "\n")
	return &admissionv1.AdmissionResponse{UID: r.UID, Result: status}
}

// answered is the review with the answer, as JSON.
func answered(r *admissionv1.AdmissionResponse) ([]byte, error) {
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Response: r,
	})
}

// warned makes warnings short and few.
func warned(all []string) (out []string) {
	for i, w := range all {
		if i == maxWarnings-1 && len(all) > maxWarnings {
			return append(out, fmt.Sprintf("and %d more warnings: \"weir check\" has them all", len(all)-i))
		}
		out = append(out, cut(visible.Text(w), maxWarning))
	}
	return out
}

// cut shortens a text to so many bytes.
func cut(text string, most int) string {
	const mark = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
