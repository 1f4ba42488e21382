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
	"github.com/theseus-cni/theseus/internal/step"
)

// mirrorFlags are what a plan of the strategy mirror is told beside the change.
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
	flags.StringVar(&f.freeze.Reason, "because", "", "strategy mirror: the reason of the freeze, which everybody reads who is stopped")
	flags.StringSliceVar(&f.freeze.Allowed, "allow", nil, "strategy mirror: users who may go on to deploy, and groups as group:NAME")
	flags.StringVar(&f.switching.Command, "switch-command", "", "strategy mirror: what changes the idle original, run by a shell; run twice it must do the same. Without it a person does")
	flags.StringVar(&f.switching.Roll, "roll-command", "", "strategy mirror: what replaces one node, $"+mirror.NodeVariable+", run by a shell, once for each that is not Ready --roll-after the switch command has ended")
	flags.DurationVar(&f.rollAfter, "roll-after", 10*time.Minute, "strategy mirror: how long nodes may take to be Ready after the switch command")
	flags.StringVar(&f.switching.Strategy, "switch-strategy", "", "strategy mirror: change the idle original by steps of the plan, by this strategy (recreate, adopt or surge), with the flags that it needs")
	flags.StringSliceVar(&f.config, "switch-config", nil, "strategy mirror: the original's configuration (kops, Cluster API), which the command gets with the network --to and with doubled nodes, in the file $"+mirror.ConfigVariable)
	flags.StringArrayVar(&f.answers, "switch-answer", nil, "strategy mirror: what was decided about the configuration of --switch-config, as for theseus mirror config --answer")
	flags.StringSliceVar(&f.certs.Domains, "domain", nil, "strategy mirror: give certificates the mirror's names before, and take them back at the end: blue.example.org=green.example.org")
	flags.StringSliceVar(&f.certs.Skip, "skip-certificate", nil, "strategy mirror: certificates to leave out, namespace/name")
	flags.BoolVar(&f.certs.HTTP01, "http01", false, "strategy mirror: names that the authority asks by HTTP-01 point to the original")
	flags.StringVar(&f.cloudPlan, "cloud-plan", "", "strategy mirror: a plan of theseus mirror cloud, carried out before and taken back at the end")
	flags.StringVar(&f.endpoint, "cloud-endpoint", "", "strategy mirror: address of the cloud's API, for --cloud-plan; nothing is changed where none is named")
	flags.BoolVar(&f.prove, "prove-certificates", false, "strategy mirror: prove by handshakes what the mirror serves for every name before names move")
	flags.DurationVar(&f.validFor, "valid-for", 72*time.Hour, "strategy mirror: how long the certificates of --prove-certificates must be valid from then on")
	flags.BoolVar(&f.keep, "keep-mirror", false, "strategy mirror: leave what was copied on the mirror")
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
	want := freeze.Freeze{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed, By: "whoever applies it", Since: time.Now()}
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
		return exit.Fail(exit.Blocked, "theseus mirror copy, with the same flags: it makes the mirror's load balancers, to which the names will point; nobody asks there yet",
			"nothing was copied to the mirror, so its services have no addresses")
	}
	setup := mirror.Setup{Access: f.access, Switch: f.switching, Keep: f.keep,
		Freeze: mirror.FreezeArgs{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed}, Copy: f.selection.Selection}
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
	if within != nil { // pods that cannot be adopted are created again
		setup.Switch.Strategy = within.Strategy
	}
	request := &kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers.All(), Options: plan.Options{Version: a.Version, Now: time.Now()}}
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

// planSwitch sees the original, and plans its change where that is by a strategy.
func planSwitch(ctx context.Context, a *app.App, change v1alpha1.ChangeSpec) (*cluster.Snapshot, *plan.Plan, error) {
	if change.Strategy == "" {
		snapshot, err := survey.See(ctx, a, nil)
		return snapshot, nil, err
	}
	if err := switchable(change.Strategy); err != nil {
		return nil, nil, err
	}
	pass, result, _, err := survey.Check(ctx, a, nil, change, survey.Options(change))
	if err != nil {
		return nil, nil, err
	}
	if err := survey.MustNotBlock(a, result, survey.AcceptHint); err != nil {
		return nil, nil, err
	}
	change.AgentImage = planning.Pinned(ctx, a, pass.Served, change.AgentImage)
	p, err := plan.Make(pass.Snapshot, change, drivers.All(), result.Findings, plan.Options{Version: a.Version, Now: time.Now(), Manifest: pass.Manifest})
	return pass.Snapshot, p, err
}

// switchable refuses strategies by which the original is not changed in a plan of the strategy mirror.
func switchable(strategy string) error {
	switch strategy {
	case recreate.Name, adopt.Name, surge.Name:
		return nil
	case mirror.Name:
		return exit.Fail(exit.Usage, "give the one by which the idle original is changed: recreate, adopt or surge", "--switch-strategy %s: the original has its mirror already", strategy)
	case upgrade.Name, rollout.Name, pool.Name, reflectors.Name, encapsulation.Name:
		return exit.Fail(exit.Usage, "make a plan of its own for it, before this one or after it; or give --switch-command with what changes the original",
			"--switch-strategy %s: it leaves the network that there is, and names come home only when another one, which --to names, is seen on the original", strategy)
	}
	return exit.Fail(exit.Usage, "recreate, adopt or surge; or --switch-command with what changes the original", "--switch-strategy %s is not known", strategy)
}

// extras are the parts of a plan that are there when they are asked for: rights in the cloud, names in certificates, and
// the original's configuration.
func extras(ctx context.Context, m *clusters.Clusters, f *mirrorFlags, change v1alpha1.ChangeSpec, setup *mirror.Setup) error {
	if (f.cloudPlan == "") != (f.endpoint == "") {
		return exit.Fail(exit.Usage, "give both, or none and use the lines of theseus mirror cloud plan --format cli", "--cloud-plan and --cloud-endpoint go together")
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
			return exit.Fail(exit.Usage, "give --to, and --switch-command, such as 'kops replace -f $"+mirror.ConfigVariable+" && kops update cluster --yes && kops rolling-update cluster --yes'",
				"--switch-config makes a configuration with another network for a command")
		}
		result, _, err := mirrorconfig.Convert(m, &mirrorconfig.Flags{From: f.config, Answers: f.answers, Options: config.Options{Network: change.To, Surge: true}})
		if err != nil {
			return err
		}
		if err := mirrorconfig.Ask(m, result, "--switch-answer"); err != nil {
			return err
		}
		setup.Switch.Config = &mirror.Config{Text: string(result.Text)}
		for _, c := range result.Changes {
			setup.Switch.Config.Changes = append(setup.Switch.Config.Changes, fmt.Sprintf("%s:%d %s: %s -> %s", c.File, c.Line, c.Path, cmp.Or(c.From, "none"), cmp.Or(c.To, "none")))
		}
	}
	return nil
}
