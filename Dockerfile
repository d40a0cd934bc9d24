# An image of the binary alone: `docker build -t frazil . && docker run --rm -v "$PWD:/work" frazil inspect model.ckpt`.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --workspace --bin frazil && cp target/release/frazil /frazil

# The binary needs the C library and nothing else.
FROM debian:bookworm-slim
COPY --from=build /frazil /usr/local/bin/frazil
WORKDIR /work
ENTRYPOINT ["/usr/local/bin/frazil"]
