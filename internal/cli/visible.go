package cli

import (
	"encoding/json"
	"errors"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/visible"
)

// listed is an error with lines below it.
type listed struct {
	error
	lines []string
}

func (e *listed) Error() string { return e.error.Error() + ":\n" + strings.Join(e.lines, "\n") }

func (e *listed) Unwrap() error { return e.error }

// errorText is an error for people: what others wrote of it, such as the names of files, has no lines of its own.
func errorText(err error) string {
	lines := []string{err.Error()}
	var list *listed
	var joined interface{ Unwrap() []error }
	if errors.As(err, &list) && list.Error() == err.Error() {
		lines = append([]string{list.error.Error() + ":"}, list.lines...)
	} else if errors.As(err, &joined) && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		lines = nil
		for _, e := range joined.Unwrap() {
			lines = append(lines, e.Error())
		}
	}
	for i, line := range lines {
		lines[i] = visible.Text(line)
	}
	return strings.Join(lines, "\n")
}

// marshalYAML is v as YAML. Where plain YAML would print what is not visible, it is JSON, which is YAML with escapes.
func marshalYAML(v any) ([]byte, error) {
	text, err := yaml.Marshal(v)
	if err != nil || visible.Plain(text) {
		return text, err
	}
	if text, err = json.MarshalIndent(v, "", "  "); err != nil {
		return nil, err
	}
	return append(visible.YAML(text), '\n'), nil
}
