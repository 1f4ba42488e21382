package provider

import (
	"encoding/json"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// The messages of OFREP 0.3.0, the OpenFeature remote evaluation protocol.
const (
	evaluatePath = "/ofrep/v1/evaluate/flags"
	// maxBody is the size of a request or an answer.
	maxBody = 8 << 20
)

type ofrepRequest struct {
	Context map[string]any `json:"context"`
}

// ofrepResult is one flag's evaluation; without a value, the caller's default applies.
type ofrepResult struct {
	Key          string          `json:"key"`
	Reason       string          `json:"reason,omitempty"`
	Variant      string          `json:"variant,omitempty"`
	Value        json.RawMessage `json:"value,omitempty"`
	Metadata     map[string]any  `json:"metadata,omitempty"`
	ErrorCode    flagset.Code    `json:"errorCode,omitempty"`
	ErrorDetails string          `json:"errorDetails,omitempty"`
}

type ofrepBulk struct {
	Flags    []ofrepResult  `json:"flags"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

type ofrepFailure struct {
	ErrorDetails string `json:"errorDetails"`
}

// notReady is the error code of a server that has not loaded a set yet.
const notReady flagset.Code = "PROVIDER_NOT_READY"
