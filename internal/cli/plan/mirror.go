package plan

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/encapsulation"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/pool"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/change/reflectors"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/change/upgrade"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/certs"
	"github.com/theseus-cni/theseus/internal/cli/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	mirrorconfig "github.com/theseus-cni/theseus/internal/cli/mirror/config"
	"github.com/theseus-cni/theseus/internal/cli/mirror/copy"
	"github.com/theseus-cni/theseus/internal/cli/mirror/dns"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/planning"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/config"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/step"
)

// mirrorFlags are the flags of a plan of the strategy mirror, in addition to the change.
type mirrorFlags struct {
	access    mirror.Access
	selection copy.Flags
	dns       dns.PlanFlags
	freeze    mirror.FreezeArgs
	switching mirror.Switch
	rollAfter time.Duration
	config    []string
	answers   []string
	certs     mirror.CertificateArgs
	cloudPlan string
	endpoint  string
	prove     bool
	validFor  time.Duration
	keep      bool
}

func (f *mirrorFlags) register(command *cobra.Command) {
	pair.RegisterAccess(command, &f.access)
	f.selection.Register(command)
	f.dns.RegisterMoves(command)
	flags := command.Flags()
	flags.StringVar(&f.freeze.Reason, "because", "",
		"strategy mirror: the reason for the freeze, shown to everyone whose deploy is denied")
	flags.StringSliceVar(&f.freeze.Allowed, "allow", nil,
		"strategy mirror: users who may continue to deploy, and groups as group:NAME")
	flags.StringVar(&f.switching.Command, "switch-command", "",
		"strategy mirror: idempotent shell command that changes the idle original. Without it, a person changes it")
	flags.StringVar(&f.switching.Roll, "roll-command", "", "strategy mirror: shell command that replaces one node, $"+
		mirror.NodeVariable+", run once for each node that is not Ready --roll-after the switch command has ended")
	flags.DurationVar(&f.rollAfter, "roll-after", 10*time.Minute,
		"strategy mirror: how long nodes may take to become Ready after the switch command")
	flags.StringVar(&f.switching.Strategy, "switch-strategy", "", "strategy mirror: change the idle original by "+
		"steps of the plan, by this strategy (recreate, adopt or surge), with the flags that it needs")
	flags.StringSliceVar(&f.config, "switch-config", nil,
		"strategy mirror: the original's configuration (kops, Cluster API); the command gets it in the file $"+
			mirror.ConfigVariable+", with the network --to and doubled nodes")
	flags.StringArrayVar(&f.answers, "switch-answer", nil,
		"strategy mirror: a decision about the configuration of --switch-config, as for theseus mirror config --answer")
	flags.StringSliceVar(&f.certs.Domains, "domain", nil, "strategy mirror: add the mirror's names to certificates "+
		"first, and remove them at the end: blue.example.org=green.example.org")
	flags.StringSliceVar(&f.certs.Skip, "skip-certificate", nil,
		"strategy mirror: certificates to leave out, namespace/name")
	flags.BoolVar(&f.certs.HTTP01, "http01", false,
		"strategy mirror: names that the CA verifies by HTTP-01 point to the original")
	flags.StringVar(&f.cloudPlan, "cloud-plan", "",
		"strategy mirror: a plan of theseus mirror cloud, applied first and undone at the end")
	flags.StringVar(&f.endpoint, "cloud-endpoint", "",
		"strategy mirror: address of the cloud's API, required with --cloud-plan")
	flags.BoolVar(&f.prove, "prove-certificates", false,
		"strategy mirror: before names move, check by TLS handshakes which certificate the mirror serves for each")
	flags.DurationVar(&f.validFor, "valid-for", 72*time.Hour,
		"strategy mirror: how long the certificates of --prove-certificates must still be valid")
	flags.BoolVar(&f.keep, "keep-mirror", false, "strategy mirror: leave the copied objects on the mirror")
}

// planMirror makes a plan of the strategy mirror, and signs its file with signKey, unless that is "".
func planMirror(ctx context.Context, a *app.App, f *mirrorFlags, change v1alpha1.ChangeSpec, signKey string) error {
	m, _ := pair.Named(a, f.access, mirror.Access{})
	f.dns.Zones = f.access.Zones
	f.dns.Bake = time.Duration(change.BakeSeconds) * time.Second
	copier, err := copy.Copier(m, &f.selection)
	if err != nil {
		return err
	}
	want := freeze.Freeze{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed,
		By: "the user who applies it", Since: time.Now()}
	if err := want.Check(); err != nil {
		return exit.Fail(exit.Usage, "give one with --because, such as --because 'CHG-1234'", "%w", err)
	}
	pass, err := copier.Look(ctx)
	if err != nil {
		return err
	}
	if err := replica.Decided(pass); err != nil {
		return copy.Coded(err)
	}
	if pass.Delta.InStep == 0 {
		return exit.Fail(exit.Blocked, "run theseus mirror copy with the same flags: it makes the mirror's load "+
			"balancers, to which the names will point; no client uses them yet",
			"the mirror's services have no addresses, since nothing was copied to it")
	}
	setup := mirror.Setup{Access: f.access, Switch: f.switching, Keep: f.keep,
		Freeze: mirror.FreezeArgs{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed},
		Copy:   f.selection.Selection}
	setup.Copy.Namespaces, setup.Switch.To = copier.Namespaces, change.To
	if f.switching.Roll != "" {
		setup.Switch.RollAfter = step.Duration(f.rollAfter)
	}
	if f.prove {
		setup.Handshakes = &mirror.HandshakeArgs{ValidFor: step.Duration(f.validFor)}
	}
	for _, file := range []*string{&setup.Access.Kubeconfig, &setup.Access.Zones} {
		if *file != "" {
			if *file, err = filepath.Abs(*file); err != nil {
				return err
			}
		}
	}
	if setup.Original, err = copier.Original.Identity(ctx); err != nil {
		return err
	}
	if setup.Mirror, err = copier.Mirror.Identity(ctx); err != nil {
		return err
	}
	if setup.Names, err = dns.MakePlan(ctx, m, f.dns); err != nil {
		return err
	}
	if err := extras(ctx, m, f, change, &setup); err != nil {
		return err
	}
	own := change
	own.Strategy = setup.Switch.Strategy
	snapshot, within, err := planSwitch(ctx, a, own)
	if err != nil {
		return err
	}
	if within != nil { // pods that cannot be adopted are recreated
		setup.Switch.Strategy = within.Strategy
	}
	request := &kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers.All(),
		Options: plan.Options{Version: a.Version, Now: time.Now()}}
	draft, err := mirror.Propose(request, setup, within)
	if err != nil {
		return err
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		return err
	}
	return planfile.Write(a, p, signKey)
}

// planSwitch reads the original, and plans its change if a strategy makes it.
func planSwitch(ctx context.Context, a *app.App, change v1alpha1.ChangeSpec) (*cluster.Snapshot, *plan.Plan, error) {
	if change.Strategy == "" {
		snapshot, err := survey.See(ctx, a, nil)
		return snapshot, nil, err
	}
	if err := switchable(change.Strategy); err != nil {
		return nil, nil, err
	}
	checked, err := survey.Check(ctx, a, nil, change, survey.Options(change))
	if err != nil {
		return nil, nil, err
	}
	if checked.Unnamed != nil {
		return nil, nil, checked.Unnamed
	}
	if err := survey.MustNotBlock(a, checked.Result, survey.AcceptHint); err != nil {
		return nil, nil, err
	}
	change.AgentImage = planning.Pinned(ctx, a, checked.Pass.Served, change.AgentImage)
	p, err := propose.Plan(checked, change, plan.Options{Version: a.Version, Now: time.Now()})
	return checked.Pass.Snapshot, p, err
}

// switchable refuses strategies that cannot change the original within a plan of the strategy mirror.
func switchable(strategy string) error {
	switch strategy {
	case recreate.Name, adopt.Name, surge.Name:
		return nil
	case mirror.Name:
		return exit.Fail(exit.Usage, "name the strategy that changes the idle original: recreate, adopt or surge",
			"--switch-strategy %s: the original already has a mirror", strategy)
	case upgrade.Name, rollout.Name, pool.Name, reflectors.Name, encapsulation.Name:
		return exit.Fail(exit.Usage, "make a separate plan for it, before or after this one; or give --switch-command",
			"--switch-strategy %s keeps the present network, but names return only once the original is on "+
				"the network of --to", strategy)
	}
	return exit.Fail(exit.Usage, "use recreate, adopt or surge; or give --switch-command",
		"--switch-strategy %s is not known", strategy)
}

// extras are the optional parts of a plan: permissions in the cloud, names in certificates, and
// the original's configuration.
func extras(ctx context.Context, m *clusters.Clusters, f *mirrorFlags, change v1alpha1.ChangeSpec,
	setup *mirror.Setup) error {
	if (f.cloudPlan == "") != (f.endpoint == "") {
		return exit.Fail(exit.Usage, "give both, or neither, and use the commands of theseus mirror cloud plan "+
			"--format cli", "--cloud-plan and --cloud-endpoint go together")
	}
	if f.cloudPlan != "" {
		p, err := cloud.ReadPlan(f.cloudPlan)
		if err != nil {
			return err
		}
		cloud.PrintFindings(m, p)
		setup.Cloud = &mirror.CloudSetup{Endpoint: f.endpoint, Actions: p.Actions}
	}
	if len(f.certs.Domains) > 0 {
		f.certs.Namespaces = setup.Copy.Namespaces
		setup.Certificates = &f.certs
		_, entries, err := certs.Survey(ctx, m, certs.FlagsOf(setup.Certificates))
		if err == nil {
			err = certs.MayAdd(entries)
		}
		if err != nil {
			return err
		}
	}
	if len(f.config) > 0 {
		if f.switching.Command == "" || change.To == "" {
			return exit.Fail(exit.Usage, "give --to, and --switch-command, such as 'kops replace -f $"+
				mirror.ConfigVariable+" && kops update cluster --yes && kops rolling-update cluster --yes'",
				"--switch-config makes a configuration with another network, for the command of --switch-command")
		}
		result, _, err := mirrorconfig.Convert(m, &mirrorconfig.Flags{From: f.config, Answers: f.answers,
			Options: config.Options{Network: change.To, Surge: true}})
		if err != nil {
			return err
		}
		if err := mirrorconfig.Ask(m, result, "--switch-answer"); err != nil {
			return err
		}
		setup.Switch.Config = &mirror.Config{Text: string(result.Text)}
		for _, c := range result.Changes {
			setup.Switch.Config.Changes = append(setup.Switch.Config.Changes,
				fmt.Sprintf("%s:%d %s: %s -> %s", c.File, c.Line, c.Path, cmp.Or(c.From, "none"), cmp.Or(c.To, "none")))
		}
	}
	return nil
}
