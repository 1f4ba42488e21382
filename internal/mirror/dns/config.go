package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/libdns/cloudflare"
	"github.com/libdns/desec"
	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/mirror/dns/byrecord"
	"github.com/theseus-cni/theseus/internal/mirror/dns/rfc2136"
	"github.com/theseus-cni/theseus/internal/mirror/dns/route53"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// ConfigKind is the kind of the zones file.
const ConfigKind = "Zones"

// Config is the zones file (YAML): how to access zones, which resolvers must see changes, and who owns the records.
type Config struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Zones      []ZoneConfig `json:"zones"`
	// Resolvers (host:port) must show each change before the next wave, in addition to the authoritative servers.
	Resolvers []string `json:"resolvers,omitempty"`
	// Registry and Owners are the flags of external-dns in the two clusters.
	Registry zone.Registry `json:"registry,omitempty"`
	Owners   struct {
		Original string `json:"original,omitempty"`
		Mirror   string `json:"mirror,omitempty"`
	} `json:"owners,omitempty"`
	// CA is a file with root certificates (PEM), in addition to the system's; the path is relative to this file.
	CA string `json:"ca,omitempty"`
	// Ports replaces ports of probes, if a load balancer listens on different ports than its objects say.
	Ports map[int]int `json:"ports,omitempty"`
	// From are additional places from which addresses must answer before a name moves.
	From []Place `json:"from,omitempty"`

	dir string
}

// ZoneConfig is one zone; exactly one of its providers is set.
type ZoneConfig struct {
	Name    string         `json:"name"`
	RFC2136 *RFC2136Config `json:"rfc2136,omitempty"`
	Route53 *Route53Config `json:"route53,omitempty"`
	Libdns  *LibdnsConfig  `json:"libdns,omitempty"`
	// Authoritative are the servers (host:port) that must show each change; empty means those in the zone's NS records.
	Authoritative []string `json:"authoritative,omitempty"`
}

// RFC2136Config is a name server that accepts dynamic updates.
type RFC2136Config struct {
	// Server is the primary, host:port.
	Server string `json:"server"`
	// Key, Algorithm (default hmac-sha256) and SecretFile (base64 in a file) sign updates and transfers.
	Key        string `json:"key,omitempty"`
	Algorithm  string `json:"algorithm,omitempty"`
	SecretFile string `json:"secretFile,omitempty"`
}

// Route53Config is a hosted zone of Amazon Route 53; credentials are found like by the aws tool.
type Route53Config struct {
	ID string `json:"id"`
	// Endpoint replaces Route 53's default endpoint.
	Endpoint string `json:"endpoint,omitempty"`
}

// LibdnsConfig is a provider that is reached through libdns.
type LibdnsConfig struct {
	// Provider is cloudflare or desec.
	Provider string `json:"provider"`
	// TokenFile holds the token of its API, relative to the zones file.
	TokenFile string `json:"tokenFile"`
}

// libdnsProviders make providers of tokens.
func libdnsProviders() map[string]func(token string) byrecord.Provider {
	return map[string]func(string) byrecord.Provider{
		"cloudflare": func(token string) byrecord.Provider { return &cloudflare.Provider{APIToken: token} },
		"desec":      func(token string) byrecord.Provider { return &desec.Provider{Token: token} },
	}
}

const configHint = "see docs/strategies/mirror-dns.md for the zones file"

// ReadConfig reads a zones file.
func ReadConfig(file string) (*Config, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, engine.WithHint(fmt.Errorf("the zones file: %w", err), configHint)
	}
	c := &Config{dir: filepath.Dir(file)}
	if err := bounded.UnmarshalStrict(data, c); err != nil {
		return nil, engine.WithHint(fmt.Errorf("%s: %w", file, err), configHint)
	}
	if err := c.check(); err != nil {
		return nil, engine.WithHint(fmt.Errorf("%s: %w", file, err), configHint)
	}
	return c, nil
}

func (c *Config) check() error {
	if c.APIVersion != v1alpha1.APIVersion || c.Kind != ConfigKind {
		return fmt.Errorf("apiVersion %q, kind %q: want %q, %q", c.APIVersion, c.Kind, v1alpha1.APIVersion, ConfigKind)
	}
	if len(c.Zones) == 0 {
		return errors.New("it names no zone")
	}
	seen := map[string]bool{}
	for i := range c.Zones {
		z := &c.Zones[i]
		name, err := zone.Canonical(z.Name)
		if err != nil {
			return fmt.Errorf("zone %d: %w", i+1, err)
		}
		if z.Name = name; seen[name] {
			return fmt.Errorf("the zone %s is listed twice", name)
		}
		seen[name] = true
		if err := z.check(); err != nil {
			return fmt.Errorf("zone %s: %w", name, err)
		}
	}
	if slices.ContainsFunc(c.From, func(p Place) bool { return len(p) == 0 || p[0] == "" }) {
		return errors.New("from: a place is a command, as a list of its words")
	}
	return addressesIn("resolvers", c.Resolvers)
}

func (z *ZoneConfig) check() error {
	providers := 0
	for _, given := range []bool{z.RFC2136 != nil, z.Route53 != nil, z.Libdns != nil} {
		if given {
			providers++
		}
	}
	if providers != 1 {
		return errors.New("give one provider: rfc2136, route53 or libdns")
	}
	if err := addressesIn("authoritative", z.Authoritative); err != nil {
		return err
	}
	if z.Route53 != nil {
		if z.Route53.ID == "" {
			return errors.New("route53: the zone's id is missing")
		}
		return nil
	}
	if z.Libdns != nil {
		return z.checkLibdns()
	}
	r := z.RFC2136
	if err := addressesIn("rfc2136.server", []string{r.Server}); err != nil {
		return err
	}
	if (r.Key == "") != (r.SecretFile == "") {
		return errors.New("rfc2136: key and secretFile go together")
	}
	r.Algorithm = dns.CanonicalName(cmp.Or(r.Algorithm, "hmac-sha256"))
	if !slices.Contains([]string{dns.HmacSHA1, dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512},
		r.Algorithm) {
		return fmt.Errorf("rfc2136: algorithm %q is not known", r.Algorithm)
	}
	return nil
}

func (z *ZoneConfig) checkLibdns() error {
	known := libdnsProviders()
	switch {
	case known[z.Libdns.Provider] == nil:
		return fmt.Errorf("libdns: the provider %q is not known: %s",
			z.Libdns.Provider, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	case z.Libdns.TokenFile == "":
		return errors.New("libdns: tokenFile is missing")
	case len(z.Authoritative) == 0:
		return errors.New("libdns: list the zone's name servers under authoritative, since this provider does not " +
			"report them")
	}
	return nil
}

func addressesIn(field string, all []string) error {
	for _, address := range all {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("%s: %q is no host:port", field, address)
		}
	}
	return nil
}

// Open opens the zones of a file. It changes nothing, and only looks up the servers of zones that name none.
func (c *Config) Open(ctx context.Context) ([]*Zone, error) {
	var all []*Zone
	for _, z := range c.Zones {
		provider, err := c.provider(ctx, z)
		if err != nil {
			return nil, err
		}
		opened := &Zone{Name: z.Name, Provider: provider, Authoritative: z.Authoritative}
		if len(opened.Authoritative) == 0 {
			if opened.Authoritative, err = nameServers(ctx, provider, z.Name); err != nil {
				return nil, err
			}
		}
		all = append(all, opened)
	}
	return all, nil
}

func (c *Config) provider(ctx context.Context, z ZoneConfig) (Provider, error) {
	if z.Route53 != nil {
		return route53.Connect(ctx, z.Name, z.Route53.ID, z.Route53.Endpoint)
	}
	if z.Libdns != nil {
		token, err := infile.Read(c.path(z.Libdns.TokenFile))
		if err != nil {
			return nil, fmt.Errorf("the token of zone %s: %w", z.Name, err)
		}
		return &byrecord.Zone{Name: z.Name, Provider: libdnsProviders()[z.Libdns.Provider](
			strings.TrimSpace(string(token))), Servers: z.Authoritative}, nil
	}
	return c.rfc2136(z)
}

func (c *Config) rfc2136(z ZoneConfig) (Provider, error) {
	s := &rfc2136.Server{Zone: z.Name, Address: z.RFC2136.Server}
	if z.RFC2136.Key == "" {
		return s, nil
	}
	secret, err := infile.Read(c.path(z.RFC2136.SecretFile))
	if err != nil {
		return nil, fmt.Errorf("the key of zone %s: %w", z.Name, err)
	}
	s.Key = rfc2136.Key{Name: dns.CanonicalName(z.RFC2136.Key), Algorithm: z.RFC2136.Algorithm,
		Secret: strings.TrimSpace(string(secret))}
	if err := s.Key.Check(); err != nil {
		return nil, engine.WithHint(fmt.Errorf("the key of zone %s, %s: %w", z.Name, z.RFC2136.SecretFile, err),
			"write the secret in base64, as tsig-keygen prints it, and nothing else into the file")
	}
	return s, nil
}

func (c *Config) path(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(c.dir, file)
}

// nameServers are the addresses of what the zone's NS records name.
func nameServers(ctx context.Context, provider Provider, name string) ([]string, error) {
	const hint = "name the zone's servers as `authoritative` in the zones file"
	place := zone.Place{Name: name, Type: "NS"}
	current, err := provider.Read(ctx, []zone.Place{place})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, set := range current[place] {
		for _, server := range set.Values {
			found, err := net.DefaultResolver.LookupHost(ctx, server)
			if err != nil {
				return nil, engine.WithHint(fmt.Errorf("name server %s of %s: %w", server, name, err), hint)
			}
			for _, address := range found {
				all = append(all, net.JoinHostPort(address, "53"))
			}
		}
	}
	if len(all) == 0 {
		return nil, engine.WithHint(fmt.Errorf("zone %s has no NS record", name), hint)
	}
	return all, nil
}

// Prober makes what asks addresses.
func (c *Config) Prober() (*Prober, error) {
	p := &Prober{Resolvers: c.Resolvers, Ports: c.Ports, From: c.From}
	if c.CA == "" {
		return p, nil
	}
	pem, err := infile.Read(c.path(c.CA))
	if err != nil {
		return nil, fmt.Errorf("the zones file's ca: %w", err)
	}
	if p.Roots, err = trusted(pem); err != nil {
		return nil, fmt.Errorf("%s: %w", c.CA, err)
	}
	p.CA = string(pem)
	return p, nil
}
