//go:build tools

// Package gobgp pins GoBGP, the router outside of the cluster in tests: another implementation of BGP than the cluster's BIRD.
package gobgp

import (
	_ "github.com/osrg/gobgp/v4/cmd/gobgp"
	_ "github.com/osrg/gobgp/v4/cmd/gobgpd"
)
