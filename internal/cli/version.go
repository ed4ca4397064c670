package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
)

func newVersion(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Args:  noArgs,
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := process.Build()
		if output.Value == "json" {
			return process.WriteJSON(s.out, b)
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
				return flags.Errorf("which shell? One of bash, zsh, fish, powershell")
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
			return flags.Errorf("unknown shell %q: want bash, zsh, fish or powershell", args[0])
		},
	}
}
