package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// buildInfo says which build this is, as the Go toolchain recorded it.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Time is when the revision was made.
	Time string `json:"time,omitempty"`
	// Modified says that the tree differed from the revision.
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

func (b buildInfo) String() string {
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

func newVersion(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  noArgs,
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := readBuildInfo()
		if output.value == "json" {
			return writeJSON(s.out, b)
		}
		_, err := fmt.Fprintln(s.out, b)
		return err
	}
	return cmd
}

func newCompletion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Example: `  source <(weir completion bash)
  weir completion zsh > "${fpath[1]}/_weir"`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("which shell? One of bash, zsh, fish, powershell")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(s.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(s.out)
			case "fish":
				return cmd.Root().GenFishCompletion(s.out, true)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(s.out)
			}
			return usageError("unknown shell %q: want bash, zsh, fish or powershell", args[0])
		},
	}
}

// writeJSON writes indented JSON without escaping HTML.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
