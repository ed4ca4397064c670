package agreement

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The definitions are installed before the first test: that a warning or a refusal fails them all is on purpose.
func TestDefinitionsAreServedWithoutComplaint(t *testing.T) {
	if len(definitions) < 6 {
		t.Errorf("only %d definitions found", len(definitions))
	}
	for file, crd := range definitions {
		t.Run(crd.Name, func(t *testing.T) {
			want := map[apiextensionsv1.CustomResourceDefinitionConditionType]bool{
				apiextensionsv1.Established: true, apiextensionsv1.NamesAccepted: true,
			}
			for _, c := range crd.Status.Conditions {
				switch c.Type {
				case apiextensionsv1.Established, apiextensionsv1.NamesAccepted:
					delete(want, c.Type)
					if c.Status != apiextensionsv1.ConditionTrue {
						t.Errorf("%s: %s is %s: %s: %s", file, c.Type, c.Status, c.Reason, c.Message)
					}
				default:
					// NonStructuralSchema, KubernetesAPIApprovalPolicyConformant, Terminating ...
					approved := c.Type == apiextensionsv1.KubernetesAPIApprovalPolicyConformant && c.Status == apiextensionsv1.ConditionTrue
					if !approved {
						t.Errorf("%s: %s is %s: %s: %s", file, c.Type, c.Status, c.Reason, c.Message)
					}
				}
			}
			for missing := range want {
				t.Errorf("%s: the API server does not say %s", file, missing)
			}
		})
	}
}
