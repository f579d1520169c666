// A Pub/Sub server for the tests: Google's own in-memory fake, on the loopback interface alone.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: pubsub PORT")
	}
	// It ends the process with the reason when the port cannot be had.
	server := pstest.NewServerWithAddress("127.0.0.1:" + os.Args[1])
	fmt.Println("listening on", server.Addr)
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	<-stopped
}
