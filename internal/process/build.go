package process

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// BuildInfo describes this build, as the Go toolchain recorded it.
type BuildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Time is when the revision was made.
	Time string `json:"time,omitempty"`
	// Modified means that the tree differed from the revision.
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Build returns it.
func Build() BuildInfo {
	b := BuildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is one line for people.
func (b BuildInfo) String() string {
	var s strings.Builder
	s.WriteString("weir " + b.Version)
	if b.Revision != "" {
		s.WriteString(" (" + b.Revision[:min(12, len(b.Revision))])
		if b.Time != "" {
			s.WriteString(", " + b.Time)
		}
		if b.Modified {
			s.WriteString(", modified")
		}
		s.WriteString(")")
	}
	s.WriteString(" " + b.Go + " " + b.Platform)
	return s.String()
}
