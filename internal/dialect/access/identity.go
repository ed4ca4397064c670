package access

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// declaration is an IdentityBinding: the identities that it declares. Those of the own trust domain are of its own
// namespace alone, since it must not speak for others (SMI, Traffic Access Control, "Resource Design").
type declaration struct {
	subject
	sources []model.Source
}

// readIdentities adds to the workloads the groups of IdentityBindings, and finds out what these mean as sources.
func (t *translator) readIdentities() {
	t.identities = map[key]*declaration{}
	for _, b := range Identities.In(t.set) {
		id := &declaration{subject: newSubject("IdentityBinding", b)}
		t.identities[key{b.Namespace, b.Name}] = id
		t.readIdentity(id, b)
		switch {
		case len(id.sources) > 0:
		case len(id.rejected) > 0:
			id.idle = id.rejected
		default:
			t.add(&id.subject, &id.idle, t.nobody(b.Namespace, "spec.schemes", "no pods are selected, so this is nobody's identity", "correct the labels"))
		}
		id.inForce = len(id.sources) > 0
		t.status(&id.subject)
	}
}

func (t *translator) readIdentity(id *declaration, b *access.IdentityBinding) {
	s := &b.Spec.Schemes
	var accounts []string
	if s.ServiceAccount != "" {
		accounts = append(accounts, s.ServiceAccount)
		id.sources = append(id.sources, model.Source{Kind: model.KindServiceAccount, Namespace: b.Namespace, Name: s.ServiceAccount})
	}
	for i, text := range s.SPIFFE {
		field := model.FieldAt("spec.schemes.spiffeIdentities", i)
		name, namespace, account, err := parseSPIFFE(text)
		own := err == nil && name.TrustDomain() == t.options.TrustDomain && account != ""
		switch {
		case err != nil:
			t.add(&id.subject, &id.rejected, resource.Problem(codeSPIFFE, "InvalidIdentity", field, err.Error()+": it is nobody", "write it as spiffe://TRUST-DOMAIN/PATH"))
			continue
		case own && namespace != b.Namespace:
			t.add(&id.subject, &id.rejected, resource.Problem(codeSPIFFE, "ForeignNamespace", field,
				fmt.Sprintf("%q is an identity of namespace %s, for which an IdentityBinding of namespace %s cannot speak: it is left out", text, namespace, b.Namespace),
				"write an IdentityBinding in that namespace, and name it there"))
			continue
		case own:
			accounts = append(accounts, account)
		}
		id.sources = append(id.sources, model.Source{Kind: model.KindSPIFFE, Name: name.String()})
	}
	for i, p := range s.Pods {
		selector, err := metav1.LabelSelectorAsSelector(&p.LabelSelector)
		if err != nil {
			t.add(&id.subject, &id.rejected, resource.Problem(codeSelector, "InvalidSelector", model.FieldAt("spec.schemes.podLabelSelectors", i),
				err.Error()+": it selects nothing", "correct the selector"))
			continue
		}
		t.selectPods(id, b, selector)
	}
	for i := range t.pods {
		if t.pods[i].Namespace == b.Namespace && slices.Contains(accounts, t.pods[i].Account) {
			t.join(i, b.Name)
		}
	}
}

// selectPods adds the pods that a selector selects. A pod's labels are in no certificate; its name is.
func (t *translator) selectPods(id *declaration, b *access.IdentityBinding, selector labels.Selector) {
	for i := range t.pods {
		p := &t.pods[i]
		if p.Namespace != b.Namespace || !selector.Matches(labels.Set(p.PodLabels)) {
			continue
		}
		t.join(i, b.Name)
		if s := (model.Source{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}); !slices.Contains(id.sources, s) {
			id.sources = append(id.sources, s)
		}
	}
}

// join makes a workload part of an IdentityBinding, once.
func (t *translator) join(i int, name string) {
	w := &t.workloads[i]
	if !slices.ContainsFunc(w.Groups, func(g model.Group) bool { return g.Kind == access.KindIdentityBinding && g.Name == name }) {
		w.Groups = append(w.Groups, model.Group{Kind: access.KindIdentityBinding, Name: name})
	}
}

// parseSPIFFE reads a SPIFFE ID, with or without its scheme, as SMI's examples have it. namespace and account are those
// of a ServiceAccount, if the ID has the form of one's.
func parseSPIFFE(text string) (id spiffe.ID, namespace, account string, err error) {
	if !strings.Contains(text, "://") {
		text = spiffe.Scheme + text
	}
	if id, err = spiffe.Parse(text); err != nil {
		return id, "", "", err
	}
	if id.Path() == "" {
		return id, "", "", fmt.Errorf("%q names a trust domain, and nobody in it", text)
	}
	namespace, account, _ = id.ServiceAccount()
	return id, namespace, account, nil
}
