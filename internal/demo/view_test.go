package demo

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestTheDemosTablesFitTheScreen(t *testing.T) {
	problem := strings.Repeat("what is wrong ", 20)
	o := observation{elapsed: 1e9, generation: 1, problems: []string{problem}}
	for range 2 {
		o.backends = append(o.backends, backendRow{rule: "a-rule-with-a-long-name", backend: "default/a-service-with-a-very-long-name:80", share: 0.5, wanted: 0.5,
			ExchangeSnapshot: telemetry.ExchangeSnapshot{Requests: 1234567}})
		o.mirrors = append(o.mirrors, mirrorRow{rule: "a-rule-with-a-long-name", mirror: "default/another-service-with-a-long-name:80", numerator: 1, denominator: 2})
	}
	whole := tables(screen.Screen{}, o)
	for _, part := range []string{"a-rule-with-a-long-name", "a-service-with-a-very-long-name", "1234567", "RPS", problem} {
		if !strings.Contains(whole, part) {
			t.Errorf("a file lacks %q:\n%s", part, whole)
		}
	}
	for _, width := range []int{40, 60, 80} {
		text := tables(screen.Screen{Width: width}, o)
		for _, l := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(l); n > width {
				t.Errorf("a line of %d columns on a screen of %d:\n%s", n, width, text)
			}
		}
		if got, want := strings.Count(text, "\n"), strings.Count(whole, "\n"); got < want || got > want+len(problem)/width+2 {
			t.Errorf("%d columns: %d lines, in a file %d:\n%s", width, got, want, text)
		}
		if strings.Count(text, "wrong") != strings.Count(problem, "wrong") {
			t.Errorf("%d columns do not show the whole problem:\n%s", width, text)
		}
		for _, part := range []string{"BACKEND", "WANTED", "SHARE"} {
			if !strings.Contains(text, part) {
				t.Errorf("%d columns lack %s:\n%s", width, part, text)
			}
		}
	}
}
