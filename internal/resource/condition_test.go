package resource

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConditionsAreReplacedInTheirPlaces(t *testing.T) {
	before := []Condition{True("Accepted", "Accepted", ""), Unknown("Programmed", "Pending", "wait"), True("ResolvedRefs", "ResolvedRefs", "")}
	kept := fmt.Sprint(before)
	after := WithCondition(before, False("Programmed", "Invalid", "no"))
	if want := []Condition{before[0], False("Programmed", "Invalid", "no"), before[2]}; !reflect.DeepEqual(after, want) {
		t.Errorf("got %v, want %v", after, want)
	}
	if after := WithCondition(before, True("Other", "Other", "")); !reflect.DeepEqual(after, before) {
		t.Errorf("a condition of another type came in: %v", after)
	}
	if fmt.Sprint(before) != kept {
		t.Errorf("the conditions given were changed: %v", before)
	}
	if FindCondition(before, "Other") != nil || FindCondition(before, "Programmed") != &before[1] {
		t.Error("found another condition")
	}
}

func TestConditionOfAnObjectHasNoTime(t *testing.T) {
	of := metav1.Condition{Type: "Accepted", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "no", ObservedGeneration: 7, LastTransitionTime: metav1.Now()}
	want := False("Accepted", "Invalid", "no")
	want.Generation = 7
	if got := ConditionOf(of); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTextsOfManyProblemsAreBounded(t *testing.T) {
	one := Problem("WR530", "Invalid", "spec.rules[0]", strings.Repeat("x", 1000), "mend it")
	if got, want := Texts([]Finding{one, one}), one.Text()+". "+one.Text(); got != want {
		t.Errorf("got %q", got)
	}
	many := make([]Finding, 1000)
	for i := range many {
		many[i] = one
	}
	got := Texts(many)
	if len(got) > maxTexts+100 || !strings.HasSuffix(got, "; mend it. And 993 more") {
		t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-40):])
	}
}
