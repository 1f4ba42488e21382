package zone

// Move is a name that can go from one cluster to the other.
type Move struct {
	Unit
	Zone string `json:"zone"`
	// Services are the objects that the name belongs to, such as "Ingress shop/web".
	Services []string `json:"services"`
	// Probes say what must answer at the new address before the name moves.
	Probes []Probe `json:"probes"`
}

// ProbeKind is how an address is asked.
type ProbeKind string

// The kinds of probes.
const (
	// ProbeTCP: the port takes a connection.
	ProbeTCP ProbeKind = "tcp"
	// ProbeHTTP: a request with the name as its Host is answered as the old address answers it.
	ProbeHTTP ProbeKind = "http"
	// ProbeTLS: a handshake with the name shows a certificate that is valid for it.
	ProbeTLS ProbeKind = "tls"
)

// Probe is one question to an address.
type Probe struct {
	Kind ProbeKind `json:"kind"`
	// Host is the name asked for, without the dot at its end.
	Host string `json:"host"`
	Port int    `json:"port"`
	// At are the addresses (IP, or name of a load balancer) that must answer, Was those of the cluster that the
	// name leaves: with what they answer it is compared.
	At  []string `json:"at"`
	Was []string `json:"was,omitempty"`
}
