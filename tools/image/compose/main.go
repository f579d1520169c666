// Loads a Compose file as docker compose does (its own library: schema, interpolation, consistency)
// with all profiles, and prints the project as JSON. Exits with 1 and the reason if it is refused.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func load(file string) ([]byte, error) {
	options, err := cli.NewProjectOptions(
		[]string{file}, cli.WithOsEnv, cli.WithProfiles([]string{"*"}),
	)
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalJSON()
}

func main() {
	project, err := load(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout.Write(project)
}
