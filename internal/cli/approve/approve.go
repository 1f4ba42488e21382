package approve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// NewCommand makes the command theseus approve.
func NewCommand(a *app.App) *cobra.Command {
	flags, key, sender := &approval.Flags{}, "", ""
	command := migrations.Command(a, "approve",
		"Approve the plan of a migration that the controller in the cluster runs",
		"Approves the plan of a migration in your name, as the API server knows you. The controller "+
			"in the cluster begins once\n"+
			"enough people have approved exactly this plan. You need the permissions that "+
			"`theseus rights approve` prints.\n"+
			"Say which plan you have read: --plan FILE, or --expect HASH. Without them, Theseus "+
			"shows what the plan in the\n"+
			"cluster does, and asks; without a terminal, it refuses. An approval of a plan cannot be changed.\n"+
			"Before Kubernetes 1.30, and wherever the controller has a list of allowed signers, only signed "+
			"approvals count: add\n"+
			"--sign KEY. The signature is of the plan's hash, and the controller counts the people on its list "+
			"who have signed.\n"+
			"With --manifest-for, it approves nothing and prints the Approval as a manifest, for a Git repository "+
			"from which\n"+
			"Argo CD or Flux applies it. The API server admits it only from the user that it names.",
		func(ctx context.Context, client *kube.Client, name string) error {
			if sender != "" {
				return write(ctx, a, client, name, flags, key, sender)
			}
			return approve(ctx, a, client, name, flags, key)
		})
	command.Example = "  theseus approve to-calico-1 --plan plan.yaml\n" +
		"  theseus approve to-calico-1 --plan plan.yaml --manifest-for " +
		"serviceaccount:argocd/argocd-application-controller > approval.yaml"
	command.Flags().StringVar(&sender, "manifest-for", "",
		"print the manifest of the Approval instead, for the user who will apply it: user:NAME or "+
			"serviceaccount:NAMESPACE/NAME")
	flags.RegisterPlan(command)
	planfile.RegisterSign(command, &key, "")
	return command
}

func approve(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags,
	key string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err != nil {
		return err
	}
	signature, err := asking.Read(ctx, a, client, p, records, f, key)
	if err != nil {
		return err
	}
	done, err := incluster.Approve(ctx, a, client, p, signature)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return json.NewEncoder(a.Out).Encode(map[string]any{"name": name, "plan": p.Hash, "user": done.User,
			"already": done.Already, "signed": done.Signed, "approvedBy": done.By})
	}
	fmt.Fprintf(a.Out, "%s (hash %s): %s\n", name, p.Hash, done)
	done.Warn(a, incluster.ApprovedWith(migration))
	if !migration.Spec.InCluster {
		fmt.Fprintf(a.Out, "the controller does not run %s yet: `theseus resume %[1]s --in-cluster` lets it\n", name)
		return nil
	}
	fmt.Fprintf(a.Out, "`theseus watch %s` shows whether it begins\n", name)
	return nil
}

// write prints the Approval of a plan, for another user to apply. It is an approval only once the API server has
// admitted it from that user: the file itself grants nothing.
func write(ctx context.Context, a *app.App, client *kube.Client, name string, f *approval.Flags,
	key, sender string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	subject, err := kube.ReadSubject(sender)
	if err == nil && subject.Kind == rbacv1.GroupKind {
		err = fmt.Errorf("%q is a group, and each approval is in the name of one user", sender)
	}
	if err != nil {
		return exit.Fail(exit.Usage, "name the user that applies the manifest, for example "+
			"--manifest-for serviceaccount:argocd/argocd-application-controller", "--manifest-for: %w", err)
	}
	user := kube.User(subject)
	p, migration, records, err := asking.Load(ctx, a, client, name)
	if err != nil {
		return err
	}
	signature, err := asking.Read(ctx, a, client, p, records, f, key)
	if err != nil {
		return err
	}
	object := manifest.Approval(p.Name, p.Hash, user, signature).Object
	form := yaml.Marshal
	if a.Output == "json" {
		form = json.Marshal
	}
	text, err := form(object)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.Out, strings.TrimSpace(string(text))); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "note: nothing is approved yet: %s has to apply this, with the rights of "+
		"`theseus rights approve --for %s`\n", user, incluster.Subject(user))
	incluster.Approved{Signed: signature != ""}.Warn(a, incluster.ApprovedWith(migration))
	return nil
}
