package metrics

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// maxSelector bounds a selector's text in bytes.
const maxSelector = 4096

// Selector chooses by labels. nil chooses everything.
type Selector struct {
	match labels.Selector
	shown *metav1.LabelSelector
}

// ParseSelector reads a selector as it is written in the query of a request to an API server, "app=foo,tier!=web". An
// empty text is everything.
func ParseSelector(text string) (*Selector, error) {
	if len(text) > maxSelector {
		return nil, fmt.Errorf("the selector is longer than %d bytes", maxSelector)
	}
	match, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	all, _ := match.Requirements()
	if len(all) == 0 {
		return nil, nil
	}
	s := &Selector{match, &metav1.LabelSelector{}}
	for _, r := range all {
		key, values := r.Key(), r.ValuesUnsorted()
		var operator metav1.LabelSelectorOperator
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals:
			if _, again := s.shown.MatchLabels[key]; !again {
				metav1.AddLabelToSelector(s.shown, key, values[0])
				continue
			}
			operator = metav1.LabelSelectorOpIn
		case selection.In:
			operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			operator = metav1.LabelSelectorOpDoesNotExist
		default:
			return nil, fmt.Errorf("the operator %q is not supported, use =, !=, in, notin or the key alone", r.Operator())
		}
		s.shown.MatchExpressions = append(s.shown.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: r.Values().List()})
	}
	return s, nil
}

func (s *Selector) matches(l labels.Set) bool { return s == nil || s.match.Matches(l) }

// object is the selector as objects have it.
func (s *Selector) object() *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	return s.shown
}
