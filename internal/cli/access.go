package cli

import "github.com/spf13/cobra"

func newAccess(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access COMMAND",
		Short: "Work with access control",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccessGenerate(s))
	return cmd
}
