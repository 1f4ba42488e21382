package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/zonefile"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/prover"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// NewCommand makes the command theseus mirror certs.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	command := &cobra.Command{
		Use:   "certs",
		Short: "Add the mirror's names to certificates, and check the mirror's certificates",
		Long: "Before any name moves, cert-manager's certificates in the original get the names of " +
			"the mirror's services, and\n" +
			"are issued there; copy copies them to the mirror. Then a TLS handshake at the " +
			"mirror checks each name.\n\n" +
			"    list -> add -> (copy) -> prove -> back",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(m.Printing(newList(m), newAdd(m), newBack(m), newProve(m))...)
	return command
}

// Flags are the flags of list and add.
type Flags struct {
	namespaces []string
	domains    []string
	skip       []string
	http01     bool
	serves     time.Duration
}

func (f *Flags) register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only these namespaces")
	flags.StringSliceVar(&f.domains, "domain", nil,
		"map a domain of the original to one of the mirror: blue.example.org=green.example.org")
	flags.StringSliceVar(&f.skip, "skip", nil,
		"certificates to leave out: namespace/name of the Certificate, its Secret or its Ingress")
	flags.BoolVar(&f.http01, "http01", false, "names that the CA verifies by HTTP-01 point to the original")
	flags.DurationVar(&f.serves, "serves", mirror.Serves,
		"how long the mirror will serve: certificates that expire or renew meanwhile are noted")
}

// Survey reads the original's certificates and decides what to do with each.
func Survey(ctx context.Context, m *clusters.Clusters, f *Flags) (*prover.Cluster, []certs.Entry, error) {
	rules, err := certs.ParseRules(f.domains)
	if err != nil {
		return nil, nil, exit.Fail(exit.Usage, "such as --domain blue.example.org=green.example.org",
			"--domain: %v", err)
	}
	if len(rules) == 0 {
		return nil, nil, exit.Fail(exit.Usage, "give one, such as --domain blue.example.org=green.example.org",
			"no domain is given")
	}
	client, err := m.Client()
	if err != nil {
		return nil, nil, err
	}
	cluster := &prover.Cluster{Client: client}
	world, err := cluster.Read(ctx, f.namespaces)
	if err != nil {
		return nil, nil, err
	}
	for _, skip := range f.skip {
		if !strings.Contains(skip, "/") {
			return nil, nil, exit.Fail(exit.Usage, "such as --skip shop/web", "--skip %s has no namespace", skip)
		}
	}
	entries := certs.Survey(world,
		certs.Options{Rules: rules, Skip: f.skip, HTTP01: f.http01, Now: time.Now(), For: f.serves})
	return cluster, entries, nil
}

func newList(m *clusters.Clusters) *cobra.Command {
	var f Flags
	command := &cobra.Command{
		Use:   "list --domain OLD=NEW",
		Short: "List which certificates get which names, how the CA verifies each, and what blocks it",
		Long: "Reads the original, and shows what add would do with every certificate that " +
			"cert-manager makes, or that an\n" +
			"Ingress or a Gateway serves. It changes nothing. Exit code 3 means that a certificate is blocked.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			_, entries, err := Survey(command.Context(), m, &f)
			if err != nil {
				return err
			}
			if err := show(m, entries); err != nil {
				return err
			}
			if len(certs.Blocking(entries)) > 0 {
				return exit.Quiet(exit.Blocked)
			}
			return nil
		},
	}
	f.register(command)
	return command
}

func show(m *clusters.Clusters, entries []certs.Entry) error {
	if m.Output == "json" {
		return terminal.WriteJSON(m.Out, entries)
	}
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	counts := map[certs.Verdict]int{}
	for _, e := range entries {
		counts[e.Verdict]++
		detail := e.Why
		if e.Verdict == certs.Adds {
			var added []string
			for _, name := range e.Add {
				added = append(added, fmt.Sprintf("%s (%s)", name, e.Ways[name]))
			}
			detail = strings.Join(added, ", ") + " by " + e.Issuer
			if e.To != e.Object {
				detail += ", written to " + e.To
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Verdict, e.Object, detail)
		for _, text := range e.Notes {
			fmt.Fprintf(w, "\t\tnote: %s\n", text)
		}
		if e.Hint != "" {
			fmt.Fprintf(w, "\t\thint: %s\n", e.Hint)
		}
	}
	fmt.Fprintf(w, "%d certificates: %d get names, %d have them, %d unchanged, %d made by hand, %d blocked\n",
		len(entries), counts[certs.Adds], counts[certs.Has], counts[certs.Stays],
		counts[certs.ByHand], counts[certs.Blocked])
	return w.Flush()
}

func newAdd(m *clusters.Clusters) *cobra.Command {
	var f Flags
	var yes bool
	var patience time.Duration
	command := &cobra.Command{
		Use:   "add --domain OLD=NEW --yes",
		Short: "Add the mirror's names to certificates, and wait until they are issued",
		Long: "Does in the original what list shows: first one certificate of every issuer, and the others " +
			"once that is issued. The\n" +
			"annotation " + certs.RecordAnnotation +
			" of each object records its former names. It is written together\n" +
			"with the names, and only if no one else has changed the object meanwhile. The former " +
			"certificate is served until the\n" +
			"new one is issued. You can interrupt the command and run it again. Stop GitOps first " +
			"(theseus mirror freeze): it\n" +
			"would remove the names again.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if patience < 0 {
				return exit.Fail(exit.Usage, "such as --wait 10m, or 0 not to wait",
					"--wait %s is in the past", patience)
			}
			cluster, entries, err := Survey(command.Context(), m, &f)
			if err != nil {
				return err
			}
			if err := MayAdd(entries); err != nil {
				return err
			}
			if err := show(m, entries); err != nil {
				return err
			}
			if !yes {
				return exit.Fail(exit.Usage, "read the list, then add --yes", "this changes certificates")
			}
			added, err := cluster.AddNames(command.Context(), entries, patience, m.Note)
			if err == nil && m.Output != "json" {
				fmt.Fprintf(m.Out, "%d names were added\n", added)
			}
			return err
		},
	}
	f.register(command)
	command.Flags().BoolVar(&yes, "yes", false, "change the certificates, as list shows")
	command.Flags().DurationVar(&patience, "wait", prover.Patience,
		"how long a certificate may take to be issued; 0 does not wait")
	return command
}

// MayAdd returns an error if a certificate is blocked.
func MayAdd(entries []certs.Entry) error {
	if bad := certs.Blocking(entries); len(bad) > 0 {
		return exit.Fail(exit.Blocked, bad[0].Hint, "%s: %s (and %d more are blocked)",
			bad[0].Object, bad[0].Why, len(bad)-1)
	}
	return nil
}

func newBack(m *clusters.Clusters) *cobra.Command {
	var namespaces []string
	var yes bool
	command := &cobra.Command{
		Use:   "back --yes",
		Short: "Remove the mirror's names from certificates again",
		Long: "Gives every certificate exactly its former names. If someone else has changed them since, " +
			"only the added names are\n" +
			"removed. A second run changes nothing.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := m.Client()
			if err != nil {
				return err
			}
			cluster := &prover.Cluster{Client: client}
			world, err := cluster.Read(command.Context(), namespaces)
			if err != nil {
				return err
			}
			return takeBack(command.Context(), m, cluster, world, yes)
		},
	}
	command.Flags().StringSliceVarP(&namespaces, "namespace", "n", nil, "only these namespaces")
	command.Flags().BoolVar(&yes, "yes", false, "change the certificates")
	return command
}

func takeBack(ctx context.Context, m *clusters.Clusters, cluster *prover.Cluster, world certs.World, yes bool) error {
	rows, writes, err := prover.TakeNames(world)
	if err != nil {
		return exit.Fail(exit.NeedsPerson, prover.TakeNamesHint, "%w", err)
	}
	if m.Output == "json" {
		if err := terminal.WriteJSON(m.Out, rows); err != nil {
			return err
		}
	} else {
		for _, r := range rows {
			fmt.Fprintf(m.Out, "%s loses %s\n", r.Object, strings.Join(r.Names, ", "))
			if r.Changed {
				m.Note(r.Object + " was changed by someone else since: only the added names are removed")
			}
		}
	}
	switch {
	case len(writes) == 0:
		fmt.Fprintln(m.Err, "note: no certificate has added names")
		return nil
	case !yes:
		return exit.Fail(exit.Usage, "read it, then add --yes", "this changes certificates")
	}
	return cluster.Apply(ctx, writes)
}

// proveFlags are the flags of prove.
type proveFlags struct {
	zonefile.Sources
	ca      string
	domains []string
	left    time.Duration
	without bool
}

func newProve(m *clusters.Clusters) *cobra.Command {
	var f proveFlags
	command := &cobra.Command{
		Use:   "prove",
		Short: "Check by TLS handshakes which certificate the mirror serves for every name",
		Long: "Makes a TLS handshake with every address of the mirror for every host name of every " +
			"service, before any name\n" +
			"points there. The served certificate must be for the name, have a chain from a trusted " +
			"root, stay valid for some\n" +
			"time, and be the one in the mirror's Secret. A name whose objects have no TLS must " +
			"be served with TLS if the\n" +
			"original does. Exit code 3 means that a name is not proven.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			proofs, err := prove(command.Context(), m, &f)
			if err != nil {
				return err
			}
			return showProofs(m, proofs)
		},
	}
	f.Register(command)
	flags := command.Flags()
	flags.StringVar(&f.ca, "ca", "",
		"file of trusted certificates (PEM), in addition to the system's and those of the zones file")
	flags.StringSliceVar(&f.domains, "domain", nil, "also check the mirror's names: blue.example.org=green.example.org")
	flags.DurationVar(&f.left, "valid-for", 72*time.Hour, "how long certificates must still be valid")
	flags.BoolVar(&f.without, "without-secrets", false, "do not compare with the mirror's Secrets")
	return command
}

// prove makes handshakes with the mirror's addresses for every name.
func prove(ctx context.Context, m *clusters.Clusters, f *proveFlags) ([]prover.Proof, error) {
	if f.left < 0 {
		return nil, exit.Fail(exit.Usage, "such as --valid-for 72h", "--valid-for %s is in the past", f.left)
	}
	rules, err := certs.ParseRules(f.domains)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "such as --domain blue.example.org=green.example.org", "--domain: %v", err)
	}
	prober := &dns.Prober{}
	if f.Zones != "" {
		config, err := zonefile.Read(f.Zones)
		if err != nil {
			return nil, err
		}
		if prober, err = config.Prober(); err != nil {
			return nil, err
		}
	}
	roots, err := withCA(prober.Roots, f.ca)
	if err != nil {
		return nil, err
	}
	original, err := zonefile.See(ctx, m, f.From, m.Client)
	if err != nil {
		return nil, err
	}
	other, err := zonefile.See(ctx, m, f.Mirror, m.MirrorClient)
	if err != nil {
		return nil, err
	}
	proving := &prover.Prover{Trust: certs.Trust{Roots: roots, Now: time.Now(), Left: f.left},
		Ports: prober.Ports, Resolve: prober.Addresses}
	if !f.without {
		if proving.Secrets, err = mirrorSecrets(ctx, m, f); err != nil {
			return nil, err
		}
	}
	return proving.Names(ctx, original, other, rules)
}

// mirrorSecrets finds the Secrets that the mirror serves for a name.
func mirrorSecrets(ctx context.Context, m *clusters.Clusters,
	f *proveFlags) (func(string) ([]*certs.Leaf, error), error) {
	if len(f.Mirror) > 0 {
		return nil, exit.Fail(exit.Usage, "add --without-secrets, or name the mirror with --mirror-context",
			"files do not hold the Secrets to compare with")
	}
	client, err := m.MirrorClient()
	if err != nil {
		return nil, err
	}
	world, err := (&prover.Cluster{Client: client}).Read(ctx, nil)
	if err != nil {
		return nil, err
	}
	return world.SecretsFor, nil
}

// withCA adds the certificates of a file to roots; nil means the system's.
func withCA(roots *x509.CertPool, file string) (*x509.CertPool, error) {
	if file == "" {
		return roots, nil
	}
	data, err := infile.Read(file)
	if err != nil {
		return nil, err
	}
	if roots == nil {
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, exit.Fail(exit.Failed, "use a file with PEM certificates", "%s holds no certificate", file)
	}
	return roots, nil
}

func showProofs(m *clusters.Clusters, proofs []prover.Proof) error {
	wrong, proven, plain := 0, 0, 0
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	for _, p := range proofs {
		state, detail := "proven", fmt.Sprintf("by %s, until %s", p.Issuer, p.Until.UTC().Format(time.DateOnly))
		switch {
		case len(p.Wrong) > 0:
			wrong++
			state, detail = "wrong", strings.Join(p.Wrong, "; ")
		case p.Plain:
			plain++
			state, detail = "plain", "no object asks for TLS, and the original does not serve it"
		default:
			proven++
			if p.Secret != "" {
				detail += ", Secret " + p.Secret
			}
		}
		if m.Output != "json" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", state, p.Name, p.Address, detail)
		}
	}
	if m.Output == "json" {
		if err := terminal.WriteJSON(m.Out, proofs); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%d proven, %d wrong, %d without TLS\n", proven, wrong, plain)
	}
	if err := w.Flush(); err != nil || wrong == 0 {
		return err
	}
	return exit.Quiet(exit.Blocked)
}

// FlagsOf are the flags of mirror certs for a step of a plan.
func FlagsOf(args *mirror.CertificateArgs) *Flags {
	return &Flags{namespaces: args.Namespaces, domains: args.Domains, skip: args.Skip,
		http01: args.HTTP01, serves: mirror.Serves}
}
