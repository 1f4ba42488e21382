package step

// The verbs that keep the routes of a BGP daemon while its sessions are ended and made again.
const (
	// VerbRetain takes RetainArgs: the routes that BIRD has made within the ranges are kept next to, and serve where
	// and for as long as the main table has none.
	VerbRetain = "retain"
	// VerbLetGo takes RetainArgs and takes VerbRetain back, once BIRD has a route again for each one that is kept. When
	// that does not come it fails, but where all of BIRD's sessions are up: then the block of addresses has gone
	// meanwhile.
	VerbLetGo = "let-go"
)

var retaining = []Verb{
	takes(RetainArgs.allowed, Verb{Name: VerbRetain}),
	takes(RetainArgs.allowed, Verb{Name: VerbLetGo}),
}

// RetainArgs names ranges, as IPv4 CIDRs.
type RetainArgs struct {
	Within []string `json:"within"`
}

func (a RetainArgs) allowed() error { return ranges(a.Within) }
