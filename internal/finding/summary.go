package finding

// Summary is the beginning of the JSON form of every /status.
type Summary struct {
	// Generation counts the configurations served since the start.
	Generation uint64 `json:"generation"`
	// Error is why the newest configuration is not the current one.
	Error    string    `json:"error,omitempty"`
	Findings []Finding `json:"findings"`
}

// NewSummary returns one; err is nil if the newest configuration is being served.
func NewSummary(generation uint64, findings []Finding, err error) Summary {
	s := Summary{Generation: generation, Findings: append([]Finding{}, findings...)}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}
