package finding

// About is where a finding's object was written, and which it is; empty for a finding about none.
func (f Finding) About() string {
	about := f.Origin.String()
	if name := Object(f.Ref); name != "" && about != "" {
		return about + "  " + name
	} else if name != "" {
		return name
	}
	return about
}

// Within keeps the findings about a namespace and those about none; an empty namespace is all.
func Within(findings []Finding, namespace string) []Finding {
	if namespace == "" {
		return findings
	}
	var out []Finding
	for _, f := range findings {
		if f.Ref.Namespace == "" || f.Ref.Namespace == namespace {
			out = append(out, f)
		}
	}
	return out
}
