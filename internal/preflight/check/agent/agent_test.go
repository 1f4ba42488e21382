package agent

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestImage(t *testing.T) { checktest.Run(t, Image()) }

func TestOneNode(t *testing.T) { checktest.Run(t, OneNode()) }
