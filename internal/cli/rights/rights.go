package rights

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewCommand makes the command theseus rights.
func NewCommand(a *app.App) *cobra.Command {
	var file string
	var to []string
	command := &cobra.Command{
		Use:   "rights look|plan|operate|approve",
		Short: "Print roles with the permissions to use Theseus",
		Long: "Prints roles, for kubectl apply -f -. Of the first three, each includes the " +
			"permissions of those before it:\n\n" +
			"  look     status, watch and report; part of the role view of Kubernetes\n" +
			"  plan     snapshot, check and plan, which write nothing\n" +
			"  operate  apply, resume, pause, rollback, and snapshot --nodes. It may install a " +
			"privileged DaemonSet and\n" +
			"           grant it permissions, which is as powerful as cluster-admin: bind it only to administrators\n" +
			"  approve  look, and approve: to let the controller in the cluster run a plan. No other role " +
			"includes it\n\n" +
			"With --plan, operate has only the permissions for one plan, in roles that are named after " +
			"it. The controller in the\n" +
			"cluster needs them, too.",
		Example: "  theseus rights plan --for group:sre | kubectl apply -f -\n" +
			"  theseus rights operate --plan plan.yaml --for serviceaccount:theseus-system/theseus-controller " +
			"| kubectl apply -f -\n" +
			"  theseus rights approve --for user:alice | kubectl apply -f -",
		Args: cobra.MatchAll(usage.Exactly(1, "one of look, plan, operate, approve"),
			oneOf("look", "plan", "operate", "approve")),
		ValidArgs: []string{"look", "plan", "operate", "approve"},
		RunE: func(_ *cobra.Command, args []string) error {
			duty := kube.Duty(args[0])
			var of string
			var steps []step.Step
			var uses []step.Use
			if file != "" {
				if duty != kube.Operate {
					return exit.Fail(exit.Usage, "leave --plan out",
						"the permissions of %s do not depend on a plan", duty)
				}
				p, err := planfile.Read(file)
				if err != nil {
					return err
				}
				if err := plan.Verify(p); err != nil {
					return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "the plan is invalid: %w", err)
				}
				of, steps, uses = p.Name, p.Steps, plan.UsesOf(p)
				fmt.Fprint(a.Err, note(p))
			}
			var subjects []kube.Subject
			for _, text := range to {
				subject, err := kube.ReadSubject(text)
				if err != nil {
					return exit.Fail(exit.Usage, "for example --for group:sre", "%w", err)
				}
				subjects = append(subjects, subject)
			}
			return printRights(a, duty, of, steps, subjects, uses)
		},
	}
	command.Flags().StringVar(&file, "plan", "", "plan to be applied, for operate")
	command.Flags().StringArrayVar(&to, "for", nil,
		"bind the roles to user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME (repeatable)")
	return command
}

// note says where a plan needs more than its roles.
func note(p *plan.Plan) string {
	if p.Mirror == nil {
		return ""
	}
	return "note: these roles are for the original. They include reading every object of the cluster, " +
		"Secrets among them: the copy reads all kinds.\n" +
		"      In the mirror, the plan needs the permissions to write what it copies\n"
}

func printRights(a *app.App, duty kube.Duty, of string, steps []step.Step, subjects []kube.Subject,
	uses []step.Use) error {
	objects, err := kube.Roles(duty, of, steps, subjects, uses...)
	if err != nil {
		return err
	}
	var texts [][]byte
	for i := range objects {
		text, err := yaml.Marshal(objects[i].Object)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	_, err = a.Out.Write(bytes.Join(texts, []byte("---\n")))
	return err
}

// oneOf accepts these words alone as the first argument.
func oneOf(words ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if !slices.Contains(words, args[0]) {
			return exit.Fail(exit.Usage, "use one of "+usage.Few(words), "there is no role %q", args[0])
		}
		return nil
	}
}
