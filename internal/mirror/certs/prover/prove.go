package prover

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
)

const (
	provers = 32 // handshakes under way at once
	tries   = 3  // connection attempts before a failure counts
)

// Ask is a name that the mirror's addresses must serve.
type Ask struct {
	Name string
	Port int
	// At are the mirror's addresses, IPs or names of load balancers; Was are the original's.
	At, Was []string
	// Must is true if the mirror's objects serve TLS there; otherwise TLS is required only if the original serves it.
	Must bool
	// Object is the object that wants the name.
	Object string
}

// Proof is the result of one handshake: what an address served for a name.
type Proof struct {
	Name    string `json:"name"`
	Object  string `json:"object,omitempty"`
	Address string `json:"address,omitempty"` // host:port
	// Issuer and Until are those of the certificate; empty where none was served.
	Issuer string    `json:"issuer,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	// Secret is the one whose certificate it is; empty where the cluster has none for the name.
	Secret string `json:"secret,omitempty"`
	// Wrong lists the problems; empty if the proof succeeded.
	Wrong []string `json:"wrong,omitempty"`
	// Plain is true if no object wants TLS there and the original does not serve it, so no handshake was made.
	Plain bool `json:"plain,omitempty"`
}

// Prover makes TLS handshakes.
type Prover struct {
	Trust certs.Trust
	// Timeout is the timeout of one handshake.
	Timeout time.Duration
	// Ports replaces ports, if a load balancer listens on a different one.
	Ports map[int]int
	// Resolve finds the addresses of load balancers, of which some may be given by name (dns.Prober.Addresses).
	Resolve func(ctx context.Context, targets []string) ([]string, error)
	// Secrets returns the mirror's Secrets for a name; nil skips the comparison.
	Secrets func(name string) ([]*certs.Leaf, error)
}

// Names proves every name that an object of either cluster wants, and its name on the mirror according to the rules.
func (p *Prover) Names(ctx context.Context, original, mirror *cluster.Snapshot, rules certs.Rules) ([]Proof, error) {
	asks := Asks(names.Claims(original), names.Claims(mirror), rules)
	if len(asks) == 0 {
		return nil, nothingError{}
	}
	return p.Prove(ctx, asks)
}

// nothingError is that of clusters without names.
type nothingError struct{}

func (nothingError) Error() string {
	return "no object of either cluster has a host name, so nothing was proven"
}
func (nothingError) Hint() string {
	return "theseus mirror dns inventory says which objects have names"
}

// Prove tests every name at every address of the mirror, from this machine. Proofs are in the order of the asks.
func (p *Prover) Prove(ctx context.Context, asks []Ask) ([]Proof, error) {
	results := make([][]Proof, len(asks))
	var group errgroup.Group
	group.SetLimit(provers)
	for i, ask := range asks {
		group.Go(func() error {
			results[i] = p.prove(ctx, ask)
			return nil
		})
	}
	group.Wait() //nolint:errcheck // each proof has its own
	var all []Proof
	for _, some := range results {
		all = append(all, some...)
	}
	return all, ctx.Err()
}

func (p *Prover) prove(ctx context.Context, ask Ask) []Proof {
	addresses, err := p.Resolve(ctx, ask.At)
	if err == nil && len(addresses) == 0 {
		err = errors.New("the mirror has no address for it")
	}
	if err != nil {
		return []Proof{{Name: ask.Name, Object: ask.Object, Wrong: []string{err.Error()}}}
	}
	plain := !ask.Must && !p.originalServes(ctx, ask)
	var proofs []Proof
	for _, address := range addresses {
		proof := Proof{Name: ask.Name, Object: ask.Object, Address: p.at(address, ask.Port), Plain: plain}
		if !plain {
			if chain, err := p.handshake(ctx, ask.Name, proof.Address); err != nil {
				proof.Wrong = []string{err.Error()}
			} else {
				p.judge(&proof, chain)
			}
		}
		proofs = append(proofs, proof)
	}
	return proofs
}

func (p *Prover) judge(proof *Proof, chain []*x509.Certificate) {
	proof.Wrong = p.Trust.Judge(Probe(proof.Name), chain)
	proof.Issuer, proof.Until = cmp.Or(chain[0].Issuer.CommonName, chain[0].Issuer.String()), chain[0].NotAfter
	if p.Secrets == nil {
		return
	}
	secrets, err := p.Secrets(proof.Name)
	if err == nil && len(secrets) > 0 {
		proof.Secret, err = certs.Same(chain[0], secrets)
	}
	if err != nil {
		proof.Wrong = append(proof.Wrong, err.Error())
	}
}

// Probe is the name that stands for a wildcard.
func Probe(name string) string {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		return "theseus-probe." + rest
	}
	return name
}

func (p *Prover) at(address string, port int) string {
	return net.JoinHostPort(address, strconv.Itoa(cmp.Or(p.Ports[port], port)))
}

// originalServes says whether TLS is spoken at the address that the name leaves.
func (p *Prover) originalServes(ctx context.Context, ask Ask) bool {
	addresses, err := p.Resolve(ctx, ask.Was)
	if err != nil || len(addresses) == 0 {
		return false
	}
	_, err = p.handshake(ctx, ask.Name, p.at(addresses[0], ask.Port))
	return err == nil
}

// handshake returns what is served for a name, without a judgement.
func (p *Prover) handshake(ctx context.Context, name, at string) (chain []*x509.Certificate, err error) {
	for range tries {
		if chain, err = p.once(ctx, Probe(name), at); err == nil || ctx.Err() != nil {
			break
		}
	}
	return chain, err
}

func (p *Prover) once(ctx context.Context, name, at string) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Timeout, 5*time.Second))
	defer cancel()
	// It accepts every served certificate; Trust judges it, with a reason for each fault.
	config := &tls.Config{ServerName: name, InsecureSkipVerify: true}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("no TLS with the name %s: %w", name, err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}
