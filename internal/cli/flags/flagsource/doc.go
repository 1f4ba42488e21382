// Package flagsource opens sources of flags, as --source and --flags name them.
package flagsource
